"""Prints what gguf-py finds in GGUF files: one JSON line a file, as main.go does."""
import json
import sys

import gguf

for path in sys.argv[1:]:
    r = gguf.GGUFReader(path)
    print(json.dumps({
        "keys": [k for k in r.fields if not k.startswith("GGUF.")],
        "tensors": [{"name": t.name, "dims": [int(d) for d in t.shape], "type": int(t.tensor_type),
                     "at": int(t.data_offset), "size": int(t.n_bytes)} for t in r.tensors],
    }))
