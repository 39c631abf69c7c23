package ternary

// Occupancy counts the values that weights take.
type Occupancy struct {
	Weights                          int64
	PlusLo, PlusHi, MinusLo, MinusHi int64
}

// Zeros is the number of weights that are 0.
func (o Occupancy) Zeros() int64 { return o.Weights - o.Plus() - o.Minus() }

// Plus is the number of weights above 0.
func (o Occupancy) Plus() int64 { return o.PlusLo + o.PlusHi }

// Minus is the number of weights below 0.
func (o Occupancy) Minus() int64 { return o.MinusLo + o.MinusHi }

// Lo is the number of weights of the first magnitude.
func (o Occupancy) Lo() int64 { return o.PlusLo + o.MinusLo }

// Hi is the number of weights of the second magnitude.
func (o Occupancy) Hi() int64 { return o.PlusHi + o.MinusHi }

// Add adds the counts of p.
func (o *Occupancy) Add(p Occupancy) {
	o.Weights += p.Weights
	o.PlusLo += p.PlusLo
	o.PlusHi += p.PlusHi
	o.MinusLo += p.MinusLo
	o.MinusHi += p.MinusHi
}

func (o *Occupancy) addRow(c rowCount, cols int) {
	o.Weights += int64(cols)
	o.PlusLo += int64(c.plusLo)
	o.PlusHi += int64(c.plusHi)
	o.MinusLo += int64(c.minusLo)
	o.MinusHi += int64(c.minusHi)
}

// Survey is what one walk over all weights finds.
type Survey struct {
	Bytes  int64                       // bytes of weights, scales and vectors
	Layers [][NumProjections]Occupancy // [Config.Layers], linears in file order
	Total  Occupancy                   // over all ternary linears

	// SumMismatches counts the integrity words (rs_lo, rs_hi, wsum) that are
	// not the sum that convention says, and FirstMismatch is the first of
	// them in file order, or nil. Publishers may keep something else there,
	// so this is a warning and no error.
	SumMismatches int64
	FirstMismatch *Error
}

// Projection adds up one linear over all layers.
func (s *Survey) Projection(j int) Occupancy {
	var o Occupancy
	for i := range s.Layers {
		o.Add(s.Layers[i][j])
	}
	return o
}
