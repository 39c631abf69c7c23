package backend

import "npack/ternary"

// Memory is what running a model takes in one backend, in bytes.
type Memory struct {
	Weights int64 // all tensors, as the backend holds them
	Token   int64 // of the weights, what has to be read for one token
	Cache   int64 // keys and values of a context
	Buffers int64 // activations and tables
}

// Planner is a [Backend] that knows how much memory it takes.
type Planner interface {
	// Plan says what m takes, loaded with o, with one sequence of context tokens
	// through which up to columns tokens go at once. It reads the geometry of m
	// alone.
	Plan(m *ternary.Model, o Options, context, columns int) Memory
}
