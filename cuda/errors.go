package cuda

import (
	"fmt"

	"npack/gpu"
)

// Error is a call of the driver that failed.
type Error struct {
	Op   string // what was tried, with numbers
	Code int32  // the driver's CUresult
	Log  string // of its compiler, if that failed
}

// result is what a CUresult means to a user.
type result struct {
	code int32
	name string // as cuda.h calls it, without CUDA_ERROR_
	do   string // what to do, "" where there is nothing
	kind error  // or nil
}

// The kinds of failure: the context is lost, there is no memory, or the machine
// has nothing to run on. The codes are those of cuda.h, which never change.
const newerDriver = "install a newer NVIDIA driver"

var results = []result{
	{1, "INVALID_VALUE", "a bug of this program: please report it", nil},
	{2, "OUT_OF_MEMORY", "another program may use the card (nvidia-smi lists them); a shorter context (-c) or --kv int8 needs less", gpu.ErrMemory},
	{3, "NOT_INITIALIZED", "", nil},
	{4, "DEINITIALIZED", "", gpu.ErrLost},
	{34, "STUB_LIBRARY", "the toolkit's stub of libcuda was found, not the driver's: look at LD_LIBRARY_PATH", ErrUnavailable},
	{46, "DEVICE_UNAVAILABLE", "another process holds the card alone (compute mode exclusive)", ErrUnavailable},
	{100, "NO_DEVICE", "no card is visible: look at nvidia-smi and CUDA_VISIBLE_DEVICES", ErrUnavailable},
	{101, "INVALID_DEVICE", "look at CUDA_VISIBLE_DEVICES", ErrUnavailable},
	{200, "INVALID_IMAGE", "a bug of this program: please report it", nil},
	{201, "INVALID_CONTEXT", "a bug of this program: please report it", nil},
	{209, "NO_BINARY_FOR_GPU", newerDriver, ErrUnavailable},
	{214, "ECC_UNCORRECTABLE", "the card's memory is damaged: look at nvidia-smi -q", gpu.ErrLost},
	{218, "INVALID_PTX", "a bug of this program: please report it", nil},
	{220, "NVLINK_UNCORRECTABLE", "", gpu.ErrLost},
	{221, "JIT_COMPILER_NOT_FOUND", "the driver's compiler (libnvidia-ptxjitcompiler) is not installed; in a container allow NVIDIA_DRIVER_CAPABILITIES=compute", ErrUnavailable},
	{222, "UNSUPPORTED_PTX_VERSION", newerDriver, ErrUnavailable},
	{223, "JIT_COMPILATION_DISABLED", "unset CUDA_DISABLE_PTX_JIT", ErrUnavailable},
	{304, "OPERATING_SYSTEM", "", ErrUnavailable},
	{500, "NOT_FOUND", "a bug of this program: please report it", nil},
	{700, "ILLEGAL_ADDRESS", "a bug of this program, or a damaged card: please report it", gpu.ErrLost},
	{701, "LAUNCH_OUT_OF_RESOURCES", "a bug of this program: please report it", nil},
	{702, "LAUNCH_TIMEOUT", "the system ended a kernel that ran too long on a card that drives a display", gpu.ErrLost},
	{709, "CONTEXT_IS_DESTROYED", "", gpu.ErrLost},
	{714, "HARDWARE_STACK_ERROR", "a bug of this program, or a damaged card: please report it", gpu.ErrLost},
	{715, "ILLEGAL_INSTRUCTION", "a bug of this program, or a damaged card: please report it", gpu.ErrLost},
	{716, "MISALIGNED_ADDRESS", "a bug of this program: please report it", gpu.ErrLost},
	{717, "INVALID_ADDRESS_SPACE", "a bug of this program: please report it", gpu.ErrLost},
	{718, "INVALID_PC", "a bug of this program, or a damaged card: please report it", gpu.ErrLost},
	{719, "LAUNCH_FAILED", "a bug of this program, or a damaged card: please report it; dmesg may name an Xid", gpu.ErrLost},
	{801, "NOT_SUPPORTED", newerDriver, nil},
	{802, "SYSTEM_NOT_READY", "a service of the driver does not run (nvidia-fabricmanager on machines with NVSwitch)", ErrUnavailable},
	{803, "SYSTEM_DRIVER_MISMATCH", "the driver's library and its kernel module are of different versions: restart the machine after an update", ErrUnavailable},
	{804, "COMPAT_NOT_SUPPORTED_ON_DEVICE", newerDriver, ErrUnavailable},
	{810, "MPS_SERVER_NOT_READY", "the MPS server does not run", ErrUnavailable},
	{999, "UNKNOWN", "the driver does not say more; dmesg may name an Xid; after a suspend, reload the module nvidia_uvm", nil},
}

// lookup returns the row of a code; one that is not in the table has no name.
func lookup(code int32) result {
	for _, r := range results {
		if r.code == code {
			return r
		}
	}
	return result{code: code}
}

// Error is "allocating 3.2 GB: CUDA_ERROR_OUT_OF_MEMORY (2)".
func (e *Error) Error() string {
	r := lookup(e.Code)
	s := fmt.Sprintf("%s: CUDA error %d", e.Op, e.Code)
	if r.name != "" {
		s = fmt.Sprintf("%s: CUDA_ERROR_%s (%d)", e.Op, r.name, e.Code)
	}
	if e.Log != "" {
		s += ": " + e.Log
	}
	return s
}

// Advice is what the user can do, or "".
func (e *Error) Advice() string { return lookup(e.Code).do }

// Unwrap gives errors.Is the kind: [gpu.ErrMemory], [gpu.ErrLost] or
// [ErrUnavailable].
func (e *Error) Unwrap() error { return lookup(e.Code).kind }
