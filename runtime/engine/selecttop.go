package engine

// Partial orders for the sampler: a vocabulary has 151,936 tokens, of which a
// choice looks at a few dozen. Sorting them all would cost more than the
// smaller models' forward pass on a GPU.

// selectTop appends to dst, which is empty, the k candidates that rank first,
// in no particular order. It keeps a heap of the k best whose first element
// ranks last; most logits are refused by one comparison with it.
func selectTop(dst []candidate, logits []float64, k int) []candidate {
	for id, l := range logits {
		c := candidate{logit: l, id: int32(id)}
		switch {
		case len(dst) < k:
			dst = append(dst, c)
			if len(dst) == k {
				for i := k/2 - 1; i >= 0; i-- {
					siftWorst(dst, i)
				}
			}
		case l > dst[0].logit: // of equal logits the smaller id is in already
			dst[0] = c
			siftWorst(dst, 0)
		}
	}
	return dst
}

// siftWorst restores the heap that has its last-ranking element first.
func siftWorst(h []candidate, i int) {
	for {
		j := 2*i + 1
		if j >= len(h) {
			return
		}
		if j+1 < len(h) && h[j].before(h[j+1]) {
			j++
		}
		if !h[i].before(h[j]) {
			return
		}
		h[i], h[j] = h[j], h[i]
		i = j
	}
}

// heapify orders h so that its first element ranks first.
func heapify(h []candidate) {
	for i := len(h)/2 - 1; i >= 0; i-- {
		siftBest(h, i)
	}
}

// pop moves the first-ranking element behind the heap and returns the heap
// without it.
func pop(h []candidate) []candidate {
	last := len(h) - 1
	h[0], h[last] = h[last], h[0]
	siftBest(h[:last], 0)
	return h[:last]
}

func siftBest(h []candidate, i int) {
	for {
		j := 2*i + 1
		if j >= len(h) {
			return
		}
		if j+1 < len(h) && h[j+1].before(h[j]) {
			j++
		}
		if !h[j].before(h[i]) {
			return
		}
		h[i], h[j] = h[j], h[i]
		i = j
	}
}
