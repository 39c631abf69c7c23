package gpu

// recording is the launches of a pass of few columns of one sequence, which is
// what decoding repeats. Ids, positions and wanted columns are read from
// scratch.input, so one recording serves until the text reaches the cache's next
// step or a buffer moves.
type recording struct {
	columns, wanted, k int
	chunks, epoch      int
	launches           Recording // nil until the pass comes a second time
}

// recording returns the sequence's for passes of this kind.
func (s *sequence) recording(columns, wanted, k int) *recording {
	for i := range s.recordings {
		if r := &s.recordings[i]; r.columns == columns && r.wanted == wanted && r.k == k {
			return r
		}
	}
	s.recordings = append(s.recordings, recording{columns: columns, wanted: wanted, k: k})
	return &s.recordings[len(s.recordings)-1]
}

func (r *recording) close() {
	if r.launches != nil {
		r.launches.Close()
		r.launches = nil
	}
}

// forgetRecordings ends all recordings of the sequence.
func (s *sequence) forgetRecordings() {
	for i := range s.recordings {
		s.recordings[i].close()
	}
	s.recordings = s.recordings[:0]
}

// few launches a pass of at most headColumns columns of one sequence, from a
// recording if the device makes any.
func (in *instance) few() {
	p := &in.pass
	if in.b.rec == nil {
		in.all()
		return
	}
	s := &p.segments[0]
	r := s.seq.recording(len(p.columns), len(p.wanted), p.k)
	if r.chunks != s.chunks || r.epoch != in.epoch { // the first of this kind
		r.close()
		r.chunks, r.epoch = s.chunks, in.epoch
		in.all()
		return
	}
	if r.launches == nil {
		if r.launches, p.err = in.b.rec.Record(p.record); p.err != nil {
			r.launches = nil
			return
		}
	}
	p.err = r.launches.Play()
}

// all launches a pass whose logits are computed together.
func (in *instance) all() {
	in.body()
	if n := len(in.pass.wanted); n > 0 {
		in.logits(0, n)
	}
}

// recorded is all for [Recorder].
func (in *instance) recorded() error {
	in.all()
	err := in.pass.err
	in.pass.err = nil
	return err
}
