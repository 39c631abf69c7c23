// A libcuda.so.1 that runs the project's own kernels on the processor, stricter
// than NVIDIA's where it can be:
//   - the context is per thread; a call from another thread fails (201);
//   - work on a stream is put off until something waits for it, so that memory
//     which is changed too early is seen; CUDA_LAUNCH_BLOCKING=1 ends that;
//   - asynchronous copies want pinned memory; device addresses are no addresses of
//     the host, and memory is filled with garbage before it is given out;
//   - the PTX given to cuModuleLoadDataEx is the one that ships: its .entry names
//     pick the kernels, .param and .maxntid check each launch.
// Settings come from the environment (FAKECUDA_NAME=value) or fakecuda_set; see
// the table of settings below. What the backend counts on is in fakecuda_get.
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "host.h"
// The one kernel text, compiled with the prelude for the host.
#include "kernels.k"
#include "simt.h"

typedef int CUresult;
typedef uint64_t CUdeviceptr;

enum {
  OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_IMAGE = 200,
  INVALID_CONTEXT = 201, NO_BINARY_FOR_GPU = 209, INVALID_PTX = 218, NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_OUT_OF_RESOURCES = 701,
  LAUNCH_FAILED = 719, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
};

namespace {

// The settings. Those that say "n-th" count from when they are set; 0 is never.
enum Id { ORDER, NOOP, CARDS, CAPABILITY, MEMORY, VERSION, INIT, FAIL_ALLOC, FAIL_LAUNCH, FAIL_RUN, FAIL_CALL, FAIL_COMPILE, FLIP };
struct Setting {
  const char* name;
  long long value;
  const char* about;
} settings[] = {
    {"order", 0, "of blocks and threads: 0 forward, 1 reverse, 2 random"},
    {"noop", 0, "1: kernels are checked and counted, not run"},
    {"cards", 1, "how many there are"},
    {"capability", 89, "10*major+minor"},
    {"memory", 8ll << 30, "bytes of a card"},
    {"version", 12040, "of the driver"},
    {"init", 0, "what cuInit returns"},
    {"fail_alloc", 0, "the n-th allocation finds no memory"},
    {"fail_launch", 0, "the n-th launch is refused (701)"},
    {"fail_run", 0, "the n-th kernel that runs ends the context (719)"},
    {"fail_call", 0, "the n-th call with a context finds it lost (700)"},
    {"fail_compile", 0, "1: the compiler refuses the kernels (218)"},
    {"flip", 0, "the n-th kernel that runs gets a bit of its last buffer wrong"},
};

long long& setting(Id i) { return settings[i].value; }

long long& setting(const char* name) {
  for (Setting& s : settings)
    if (!strcmp(s.name, name)) return s.value;
  fprintf(stderr, "fakecuda: there is no setting %s\n", name);
  abort();
}

void readEnvironment() {
  for (Setting& s : settings) {
    std::string key = "FAKECUDA_";
    for (const char* c = s.name; *c; c++) key += (char)toupper(*c);
    const char* v = getenv(key.c_str());
    if (v && *v) s.value = atoll(v);
  }
}

// due counts down a setting and is true when it gets to 0.
bool due(Id i) {
  long long& n = setting(i);
  return n > 0 && --n == 0;
}

struct Memory {
  char* p;
  size_t n;
};
std::map<CUdeviceptr, Memory> memory;            // by device address
std::map<uintptr_t, size_t> pinned;              // host memory of cuMemHostAlloc
CUdeviceptr nextAddress = 0x700000000000ull;     // no address of the host
size_t used;                                     // bytes of the card

struct Module {
  struct Entry {
    std::vector<size_t> params;  // bytes
    unsigned threads;
  };
  std::map<std::string, Entry> entries;
};
struct Function {
  const simt::Reg* kernel;
  std::string name;
  Module::Entry entry;
};
struct Work {  // put off on a stream
  Function* f = nullptr;  // or a copy
  uint32_t grid[3] = {};
  std::vector<uint64_t> args;
  void* host = nullptr;
  CUdeviceptr to = 0, from = 0;
  size_t n = 0;
  struct Event* event = nullptr;
  struct Graph* graph = nullptr;
};
struct Graph {
  std::vector<Work> nodes;
};
struct Event {
  bool done = true;
};
struct Stream {
  std::vector<Work> queue;
  Graph* capture = nullptr;
  bool spoiled = false;  // something was called that cannot be captured
};

std::vector<Stream*> streams;
bool initialised;
int retained;
int lost;                     // the error that ended the context, or 0
thread_local bool current;    // the one thing that is a thread's own
long long leaked;
long long launches, runs, graphLaunches, copies, calls;

long long held() {
  long long n = (long long)(used + streams.size());
  for (auto& p : pinned) n += (long long)p.second;
  return n;
}

CUresult enter() {
  calls++;
  if (!initialised) return NOT_INITIALIZED;
  if (!current) return INVALID_CONTEXT;
  if (due(FAIL_CALL)) lost = ILLEGAL_ADDRESS;
  return lost;
}

// find returns the host's address of a device address and how many bytes of its
// allocation are left, or null.
char* find(CUdeviceptr d, size_t* left) {
  auto it = memory.upper_bound(d);
  if (it == memory.begin()) return nullptr;
  --it;
  if (d - it->first >= it->second.n) return nullptr;
  *left = it->second.n - (d - it->first);
  return it->second.p + (d - it->first);
}

char* range(CUdeviceptr d, size_t n) {
  size_t left = 0;
  char* p = find(d, &left);
  return p && n <= left ? p : nullptr;
}

bool isPinned(const void* p, size_t n) {
  auto it = pinned.upper_bound((uintptr_t)p);
  if (it == pinned.begin()) return false;
  --it;
  return (uintptr_t)p + n <= it->first + it->second;
}

void run(const Work& w);

void runKernel(const Work& w) {
  runs++;
  if (due(FAIL_RUN)) {
    lost = LAUNCH_FAILED;
    return;
  }
  if (setting(NOOP)) return;
  std::vector<simt::Slot> slots;
  for (size_t i = 0; i < w.args.size(); i++) {
    simt::Slot s = {nullptr, 0, w.args[i]};
    if (w.f->entry.params[i] == 8 && s.raw != 0 && !(s.p = find(s.raw, &s.n))) {
      fprintf(stderr, "fakecuda: kernel %s: argument %zu, 0x%llx, is no device address\n", w.f->name.c_str(), i, (unsigned long long)s.raw);
      lost = ILLEGAL_ADDRESS;
      return;
    }
    slots.push_back(s);
  }
  simt::launch(w.f->kernel, slots.data(), w.grid, (int)setting(ORDER));
  if (due(FLIP))
    for (size_t i = slots.size(); i-- > 0;)
      if (slots[i].p) {
        *(char*)slots[i].p ^= 1;
        break;
      }
}

void run(const Work& w) {
  if (lost) return;
  if (w.event) w.event->done = true;
  if (w.graph)
    for (const Work& n : w.graph->nodes) run(n);
  if (w.f) runKernel(w);
  if (w.n == 0) return;
  char *to = w.to ? range(w.to, w.n) : (char*)w.host, *from = w.from ? range(w.from, w.n) : (char*)w.host;
  if (!to || !from) {
    lost = ILLEGAL_ADDRESS;
    return;
  }
  memmove(to, from, w.n);
}

void drain(Stream* s) {
  std::vector<Work> q;
  q.swap(s->queue);
  for (const Work& w : q) run(w);
}

// add puts work off, captures it, or runs it at once if that was asked for.
CUresult add(void* stream, Work w) {
  if (!stream) return INVALID_VALUE;  // the program uses a stream of its own
  Stream* s = (Stream*)stream;
  if (s->capture) {
    if (!w.f) return s->spoiled = true, CAPTURE_UNSUPPORTED;
    s->capture->nodes.push_back(std::move(w));
    return OK;
  }
  static const char* blocking = getenv("CUDA_LAUNCH_BLOCKING");
  s->queue.push_back(std::move(w));
  if (blocking && *blocking == '1') drain(s);
  return lost;
}

bool capturing() {
  bool any = false;
  for (Stream* s : streams)
    if (s->capture) any = s->spoiled = true;
  return any;
}

size_t paramBytes(const std::string& type) { return type.size() < 2 ? 1 : (size_t)atoi(type.c_str() + type.find_first_of("0123456789")) / 8; }

// parse reads the entries of a PTX text: name, parameters, .maxntid.
Module* parse(const char* text) {
  std::string s(text);
  if (s.find(".version") == std::string::npos || s.find(".target") == std::string::npos) return nullptr;
  Module* m = new Module;
  for (size_t at = 0; (at = s.find(".entry ", at)) != std::string::npos;) {
    size_t name = at + 7, open = s.find('(', at), close = s.find(')', open), body = s.find('{', close);
    Module::Entry e = {{}, 1024};
    for (size_t p = open; (p = s.find(".param .", p)) != std::string::npos && p < close; p += 8) {
      size_t type = p + 8;
      e.params.push_back(paramBytes(s.substr(type, s.find(' ', type) - type)));
    }
    size_t max = s.find(".maxntid", close);
    if (max != std::string::npos && max < body) e.threads = (unsigned)atoi(s.c_str() + max + 8);
    m->entries[s.substr(name, open - name)] = e;
    at = body;
  }
  return m;
}

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) CUresult
#define ENTER \
  if (CUresult r = enter()) return r

API fakecuda_set(const char* name, long long value) {
  setting(name) = value;
  return OK;
}

// fakecuda_get returns a count or a setting. "held" is bytes of the card and of
// pinned memory, streams and contexts; "leaked" what was held when a context that
// was not lost was released.
extern "C" __attribute__((visibility("default"))) long long fakecuda_get(const char* name) {
  if (!strcmp(name, "launches")) return launches;
  if (!strcmp(name, "runs")) return runs;
  if (!strcmp(name, "graph_launches")) return graphLaunches;
  if (!strcmp(name, "copies")) return copies;
  if (!strcmp(name, "calls")) return calls;
  if (!strcmp(name, "used")) return (long long)used;
  if (!strcmp(name, "held")) return held() + retained;
  if (!strcmp(name, "leaked")) return leaked;
  return setting(name);
}

API cuInit(unsigned flags) {
  if (flags) return INVALID_VALUE;
  readEnvironment();
  initialised = setting(INIT) == 0;
  return (CUresult)setting(INIT);
}
API cuDriverGetVersion(int* v) { return *v = (int)setting(VERSION), OK; }
API cuDeviceGetCount(int* n) {
  if (!initialised) return NOT_INITIALIZED;
  return *n = (int)setting(CARDS), OK;
}
API cuDeviceGet(int* d, int i) {
  if (i < 0 || i >= setting(CARDS)) return INVALID_DEVICE;
  return *d = i, OK;
}
API cuDeviceGetName(char* s, int n, int d) { return snprintf(s, (size_t)n, "fakecuda %d (this processor)", d), OK; }
API cuDeviceGetPCIBusId(char* s, int n, int d) { return snprintf(s, (size_t)n, "0000:%02x:00.0", d + 1), OK; }
API cuDeviceTotalMem_v2(size_t* n, int) { return *n = (size_t)setting(MEMORY), OK; }
API cuDeviceGetAttribute(int* v, int attribute, int) {
  switch (attribute) {
    case 1: *v = 1024; break;         // threads per block
    case 5: *v = 0x7fffffff; break;   // grid x
    case 6: case 7: *v = 65535; break;
    case 16: *v = 58; break;          // multiprocessors
    case 36: *v = 6251000; break;     // memory clock, kHz
    case 37: *v = 192; break;         // memory bus, bits
    case 75: *v = (int)setting(CAPABILITY) / 10; break;
    case 76: *v = (int)setting(CAPABILITY) % 10; break;
    default: return INVALID_VALUE;
  }
  return OK;
}

API cuDevicePrimaryCtxRetain(void** c, int d) {
  if (!initialised) return NOT_INITIALIZED;
  retained++;
  return *c = (void*)(uintptr_t)(1 + d), OK;
}
API cuDevicePrimaryCtxRelease_v2(int) {
  if (retained == 0) return INVALID_CONTEXT;
  if (--retained > 0) return OK;
  // The last release frees all that the context held. A real driver wants a new
  // process after a fault; tests go on in theirs.
  if (!lost) leaked += held();
  for (auto& m : memory) munmap(m.second.p, m.second.n);
  for (auto& p : pinned) munmap((void*)p.first, p.second);
  for (Stream* s : streams) delete s;
  memory.clear(), pinned.clear(), streams.clear();
  used = 0;
  return lost = 0, OK;
}
API cuCtxSetCurrent(void* c) { return current = c != nullptr, OK; }

API cuMemGetInfo_v2(size_t* free, size_t* total) {
  ENTER;
  *total = (size_t)setting(MEMORY);
  return *free = *total - used, OK;
}
API cuMemAlloc_v2(CUdeviceptr* d, size_t n) {
  ENTER;
  if (n == 0) return INVALID_VALUE;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  if (due(FAIL_ALLOC) || n > (size_t)setting(MEMORY) - used) return OUT_OF_MEMORY;
  char* p = (char*)mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) return OUT_OF_MEMORY;
  if (!setting(NOOP)) memset(p, 0xCB, n);
  *d = nextAddress;
  nextAddress += (n + 4095) / 4096 * 4096 + 4096;
  memory[*d] = {p, n};
  return used += n, OK;
}
API cuMemFree_v2(CUdeviceptr d) {
  ENTER;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  for (Stream* s : streams) drain(s);
  auto it = memory.find(d);
  if (it == memory.end()) return INVALID_VALUE;
  used -= it->second.n;
  munmap(it->second.p, it->second.n);
  memory.erase(it);
  return lost;
}
API cuMemHostAlloc(void** p, size_t n, unsigned) {
  ENTER;
  *p = mmap(nullptr, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*p == MAP_FAILED) return OUT_OF_MEMORY;
  return pinned[(uintptr_t)*p] = n, OK;
}
API cuMemFreeHost(void* p) {
  ENTER;
  auto it = pinned.find((uintptr_t)p);
  if (it == pinned.end()) return INVALID_VALUE;
  munmap(p, it->second);
  return pinned.erase(it), OK;
}

API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t n, void* stream) {
  ENTER;
  copies++;
  if (!range(to, n) || !isPinned(from, n)) return INVALID_VALUE;
  Work w;
  w.to = to, w.host = (void*)from, w.n = n;
  return add(stream, w);
}
API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t n, void* stream) {
  ENTER;
  copies++;
  if (!range(from, n) || !isPinned(to, n)) return INVALID_VALUE;
  Work w;
  w.from = from, w.host = to, w.n = n;
  return add(stream, w);
}
API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, void* stream) {
  ENTER;
  copies++;
  if (!range(to, n) || !range(from, n) || (to < from + n && from < to + n)) return INVALID_VALUE;
  Work w;
  w.to = to, w.from = from, w.n = n;
  return add(stream, w);
}

API cuModuleLoadDataEx(void** m, const void* image, unsigned n, int* options, void** values) {
  ENTER;
  if (setting(FAIL_COMPILE)) {
    for (unsigned i = 0; i < n; i++)
      if (options[i] == 5) snprintf((char*)values[i], 64, "ptxas application ptx input, line 1; fatal: asked to fail");
    return INVALID_PTX;
  }
  const char* target = strstr((const char*)image, ".target sm_");
  if (target && atoi(target + 11) > setting(CAPABILITY)) return NO_BINARY_FOR_GPU;
  Module* parsed = parse((const char*)image);
  if (!parsed) return INVALID_IMAGE;
  return *m = parsed, OK;
}
API cuModuleUnload(void* m) {
  ENTER;
  for (Stream* s : streams) drain(s);
  return delete (Module*)m, OK;
}
API cuModuleGetFunction(void** f, void* m, const char* name) {
  ENTER;
  auto it = ((Module*)m)->entries.find(name);
  if (it == ((Module*)m)->entries.end()) return NOT_FOUND;
  for (simt::Reg* r = simt::Reg::head; r; r = r->next)
    if (!strcmp(r->name, name)) {
      if (r->threads != it->second.threads) break;
      *f = new Function{r, name, it->second};
      return OK;
    }
  fprintf(stderr, "fakecuda: kernel %s of the PTX is not that of kernels.k\n", name);
  return NOT_FOUND;
}
API cuFuncGetAttribute(int* v, int, void*) {
  ENTER;
  return *v = 0, OK;
}

API cuLaunchKernel(void* fn, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared, void* stream, void** params,
                   void** extra) {
  ENTER;
  launches++;
  if (due(FAIL_LAUNCH)) return LAUNCH_OUT_OF_RESOURCES;
  Function* f = (Function*)fn;
  if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || bx != f->entry.threads || by != 1 || bz != 1 || shared || params || !extra) return INVALID_VALUE;
  const char* buf = nullptr;
  size_t n = 0, off = 0;
  for (int i = 0; extra[i]; i += 2) {
    if (extra[i] == (void*)1) buf = (const char*)extra[i + 1];
    if (extra[i] == (void*)2) n = *(size_t*)extra[i + 1];
  }
  Work w;
  w.f = f, w.grid[0] = gx, w.grid[1] = gy, w.grid[2] = gz;
  for (size_t size : f->entry.params) {
    off = (off + size - 1) / size * size;
    uint64_t v = 0;
    if (!buf || off + size > n) break;
    memcpy(&v, buf + off, size);
    w.args.push_back(v);
    off += size;
  }
  if (w.args.size() != f->entry.params.size() || off != n) {
    fprintf(stderr, "fakecuda: kernel %s takes %zu arguments, got %zu bytes, which hold %zu\n", f->name.c_str(), f->entry.params.size(), n, w.args.size());
    return INVALID_VALUE;
  }
  return add(stream, std::move(w));
}

API cuStreamCreate(void** s, unsigned) {
  ENTER;
  streams.push_back(new Stream);
  return *s = streams.back(), OK;
}
API cuStreamDestroy_v2(void* s) {
  ENTER;
  for (size_t i = 0; i < streams.size(); i++)
    if (streams[i] == s) {
      drain(streams[i]);
      delete streams[i];
      streams.erase(streams.begin() + (long)i);
      return lost;
    }
  return INVALID_VALUE;
}
API cuStreamSynchronize(void* s) {
  ENTER;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  drain((Stream*)s);
  return lost;
}
API cuStreamBeginCapture_v2(void* s, int) {
  ENTER;
  if (((Stream*)s)->capture) return INVALID_VALUE;
  ((Stream*)s)->capture = new Graph;
  return ((Stream*)s)->spoiled = false, OK;
}
API cuStreamEndCapture(void* stream, void** g) {
  ENTER;
  Stream* s = (Stream*)stream;
  if (!s->capture) return INVALID_VALUE;
  *g = s->capture;
  s->capture = nullptr;
  if (!s->spoiled) return OK;
  delete (Graph*)*g;
  return *g = nullptr, CAPTURE_INVALIDATED;
}

API cuEventCreate(void** e, unsigned) {
  ENTER;
  return *e = new Event, OK;
}
API cuEventDestroy_v2(void* e) {
  ENTER;
  return delete (Event*)e, OK;
}
API cuEventRecord(void* e, void* stream) {
  ENTER;
  Work w;
  w.event = (Event*)e;
  w.event->done = false;
  return add(stream, w);
}
API cuEventSynchronize(void* e) {
  ENTER;
  if (capturing()) return CAPTURE_UNSUPPORTED;
  for (Stream* s : streams) {  // up to the event, no further
    size_t n = 0;
    while (n < s->queue.size() && !((Event*)e)->done) run(s->queue[n++]), n = lost ? s->queue.size() : n;
    s->queue.erase(s->queue.begin(), s->queue.begin() + (long)n);
  }
  return lost;
}

API cuGraphInstantiateWithFlags(void** exec, void* g, unsigned long long) {
  ENTER;
  return *exec = new Graph(*(Graph*)g), OK;
}
API cuGraphDestroy(void* g) {
  ENTER;
  return delete (Graph*)g, OK;
}
API cuGraphExecDestroy(void* g) {
  ENTER;
  for (Stream* s : streams) drain(s);
  return delete (Graph*)g, OK;
}
API cuGraphLaunch(void* exec, void* stream) {
  ENTER;
  graphLaunches++;
  Work w;
  w.graph = (Graph*)exec;
  return add(stream, w);
}
