//go:build noasm || !amd64

package coded

const haveKernel = false

func decodePair(lanes *[2]lane, symbols int) (eaten0, eaten1 int) {
	return decodePairGeneric(lanes, symbols)
}
