package ternary

// The methods here survey, by the rules of [Model.Survey], a model that is
// never whole in memory: its tensors come one after the other in file order, to
// one goroutine. The zero Survey is ready for them. Errors are an [*Error].

// AddMatrix checks and counts projection j of a layer. Layers come in order.
func (s *Survey) AddMatrix(name string, layer, j int, t *Matrix) error {
	o, sums, err := t.surveyRows(name, 0)
	if err != nil {
		return err
	}
	for len(s.Layers) <= layer {
		s.Layers = append(s.Layers, [NumProjections]Occupancy{})
	}
	s.Layers[layer][j].Add(o)
	s.Total.Add(o)
	s.Bytes += 3*int64(len(t.BP)) + 16*int64(t.Rows) + 4*int64(len(t.Bias))
	s.addSums(sums)
	return nil
}

// AddBias checks the biases of a matrix that was added without them.
func (s *Survey) AddBias(name string, v []float32) error {
	s.Bytes += 4 * int64(len(v))
	return checkFinite(name, PartBias, v, 0)
}

// AddVector checks the values of a norm.
func (s *Survey) AddVector(name string, v []float32) error {
	s.Bytes += 4 * int64(len(v))
	return checkFinite(name, PartNorm, v, 0)
}

// AddTable checks a table of so many bytes whose values have passed already:
// sums holds what [SumInt8] said of each row.
func (s *Survey) AddTable(name string, bytes int64, sums []int64, scale []float32, wsum []int32) error {
	s.Bytes += bytes
	var m mismatches
	for r, sum := range sums {
		m.check(name, PartWSum, r, wsum[r], sum)
	}
	s.addSums(m)
	return checkFinite(name, PartScale, scale, 0)
}

// SumInt8 returns the sum of q.
func SumInt8(q []int8) int64 { return sumInt8(q) }

func (s *Survey) addSums(m mismatches) {
	s.SumMismatches += m.n
	if s.FirstMismatch == nil {
		s.FirstMismatch = m.first
	}
}
