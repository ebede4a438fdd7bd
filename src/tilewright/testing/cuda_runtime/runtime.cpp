// Executes a kernel of CUDA text on a CPU: a fiber per thread, real barriers, drawn orders.
//
// A warp runs until it waits; which warp goes next is drawn. The kernel is compiled with
// -fsanitize=thread, whose calls before each access to memory end here instead of in a sanitizer:
// that is how accesses out of bounds, of memory nobody wrote, and races in shared memory are seen.

#include "runtime.h"

#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <vector>

#if !defined(__x86_64__)
#include <ucontext.h>
#endif

namespace {

constexpr int WARP = 32, MOST_THREADS = 1024, MOST_ARGUMENTS = 256;
constexpr size_t STACK_BYTES = 256 << 10, GUARD_BYTES = 64 << 10;
constexpr size_t GAP_BYTES = size_t(64) << 20;
constexpr size_t MOST_DYNAMIC_BYTES = 227 << 10, STATIC_REACH = 64 << 10;
constexpr uint32_t STATIC_ADDRESSES = 1 << 20;
constexpr unsigned char POISON = 0xff;  // not a number in every floating type, -1 in whole ones

enum State { READY, AT_BARRIER, AT_MEETING, AT_MASK, ENDED };

struct Copy {
  char* to;
  const char* from;
  int bytes, source_bytes;
};

struct Thread {
#if defined(__x86_64__)
  void* stack_pointer;
#else
  ucontext_t context;
#endif
  char* stack;
  cuda_triple index;
  int number, warp, lane;
  State state;
  int line;
  unsigned mask;
  const char* what;
  void* own;
  cuda_performed perform;
  std::vector<Copy> open;
  std::vector<std::vector<Copy>> groups;
};

struct Warp {
  int first, threads;
  uint16_t barriers;
};

struct Region {
  const char* name;
  char* begin;
  size_t bytes;
  bool writable;
};

// What is known of one byte of shared memory: when, and by whom, it was written and read last. Time
// is counted in barriers of the block, and within a warp in barriers of the warp.
struct Byte {
  uint32_t written, read;
  uint16_t writer, reader;
  uint16_t written_at, read_at;
  uint16_t copies;
};
constexpr uint16_t MANY = 0xffff, MANY_OF_WARP = 0x8000;

struct Window {
  char* begin;
  size_t bytes;
  const char* name;
  std::vector<Byte> known;
};

alignas(1024) char dynamic_memory[MOST_DYNAMIC_BYTES];

std::vector<Thread> threads;
std::vector<Warp> warps;
std::vector<Region> regions;
Window dynamic_window, static_window;
Thread* current;
cuda_triple block, block_size, grid_size;
uint32_t epoch, block_epoch;
int barrier_line, ended;
char* stacks;
size_t stacks_bytes;
uint64_t random_state;
bool failed;
char message[1024];
void (*kernel)(void**);
void* kernel_arguments[MOST_ARGUMENTS];

unsigned drawn(unsigned below) {  // xorshift*
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return unsigned((random_state * 0x2545f4914f6cdd1dull >> 33) % below);
}

// ---------------------------------------------------------------------------------------- fibers

#if defined(__x86_64__)
extern "C" __attribute__((visibility("hidden"))) void cuda_switch(void** save, void* load);
asm(R"(
.text
.p2align 4
.type cuda_switch, @function
cuda_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size cuda_switch, .-cuda_switch
)");
void* scheduler;
void enter(Thread& thread) { cuda_switch(&scheduler, thread.stack_pointer); }
void leave() { cuda_switch(&current->stack_pointer, scheduler); }
void prepare(Thread& thread, void (*entry)()) {
  void** top = reinterpret_cast<void**>(thread.stack + STACK_BYTES);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(entry);
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  thread.stack_pointer = top;
}
#else
ucontext_t scheduler;
void enter(Thread& thread) { swapcontext(&scheduler, &thread.context); }
void leave() { swapcontext(&current->context, &scheduler); }
void prepare(Thread& thread, void (*entry)()) {
  getcontext(&thread.context);
  thread.context.uc_stack.ss_sp = thread.stack;
  thread.context.uc_stack.ss_size = STACK_BYTES;
  thread.context.uc_link = nullptr;
  makecontext(&thread.context, entry, 0);
}
#endif

// ---------------------------------------------------------------------------------------- faults

void say(const char* form, va_list values) {
  failed = true;
  vsnprintf(message, sizeof message, form, values);
}

void stuck(const char* form, ...) {  // said by the scheduler
  va_list values;
  va_start(values, form);
  say(form, values);
  va_end(values);
}

[[noreturn]] void fault(const Thread& thread, const char* form, ...) {  // said by a thread
  char text[sizeof message];
  va_list values;
  va_start(values, form);
  vsnprintf(text, sizeof text, form, values);
  va_end(values);
  stuck("thread (%u, %u, %u) of block (%u, %u, %u) %s", thread.index.x, thread.index.y,
        thread.index.z, block.x, block.y, block.z, text);
  leave();
  __builtin_unreachable();
}

void since(char* into, size_t bytes) {
  if (barrier_line)
    snprintf(into, bytes, "since the barrier of line %d", barrier_line);
  else
    snprintf(into, bytes, "since the block began");
}

void other(char* into, size_t bytes, uint16_t who) {
  if (who == MANY)
    snprintf(into, bytes, "other threads have");
  else if (who & MANY_OF_WARP)
    snprintf(into, bytes, "threads of warp %d have", who & ~MANY_OF_WARP);
  else
    snprintf(into, bytes, "thread (%u, %u, %u) has", threads[who].index.x, threads[who].index.y,
             threads[who].index.z);
}

// ------------------------------------------------------------------------- races in shared memory

// A write where another thread wrote or read without a barrier between: a race, unless the write
// leaves the bytes as they were. Whether it does is seen at the thread's next step.
struct Doubt {
  Thread* writer;
  char *at, before[64];
  size_t bytes;
  uint16_t who;
  bool was_written;
} doubt;

[[noreturn]] void race(const Thread& thread, const char* does, const char* at, uint16_t who,
                       bool written) {
  char whose[64], when[64];
  other(whose, sizeof whose, who);
  since(when, sizeof when);
  const bool dynamic = at >= dynamic_window.begin && at < dynamic_window.begin + dynamic_window.bytes;
  const Window& window = dynamic ? dynamic_window : static_window;
  fault(thread, "%s byte %zu of %s, which %s %s %s: a race", does, size_t(at - window.begin),
        window.name, whose, written ? "written" : "read", when);
}

void settle() {
  if (!doubt.writer) return;
  Thread& writer = *doubt.writer;
  doubt.writer = nullptr;
  if (memcmp(doubt.at, doubt.before, doubt.bytes))
    race(writer, "writes", doubt.at, doubt.who, doubt.was_written);
}

bool ordered(const Thread& thread, uint16_t who, uint16_t at) {
  if (who == MANY) return false;
  const int warp = who & MANY_OF_WARP ? who & ~MANY_OF_WARP : threads[who].warp;
  return warp == thread.warp && at != warps[warp].barriers;
}

void read_shared(Thread& thread, Window& window, char* at, size_t bytes) {
  Byte* known = &window.known[at - window.begin];
  for (size_t i = 0; i < bytes; ++i) {
    Byte& byte = known[i];
    if (byte.copies)
      fault(thread, "reads byte %zu of %s, into which an asynchronous copy is still under way",
            size_t(at + i - window.begin), window.name);
    if (byte.written < block_epoch)
      fault(thread, "reads byte %zu of %s, which no thread has written",
            size_t(at + i - window.begin), window.name);
    if (byte.written == epoch && byte.writer != thread.number && byte.writer != MANY &&
        !ordered(thread, byte.writer, byte.written_at))
      race(thread, "reads", at + i, byte.writer, true);
    if (byte.read != epoch) {
      byte.read = epoch;
      byte.reader = thread.number;
    } else if (byte.reader != thread.number) {
      const bool same = byte.reader != MANY &&
                        (byte.reader & MANY_OF_WARP ? byte.reader & ~MANY_OF_WARP
                                                    : threads[byte.reader].warp) == thread.warp;
      byte.reader = same ? MANY_OF_WARP | thread.warp : MANY;
    }
    byte.read_at = warps[thread.warp].barriers;
  }
}

void write_shared(Thread& thread, Window& window, char* at, size_t bytes, bool copied) {
  Byte* known = &window.known[at - window.begin];
  for (size_t i = 0; i < bytes; ++i) {
    Byte& byte = known[i];
    if (byte.copies)
      fault(thread, "writes byte %zu of %s, into which an asynchronous copy is still under way",
            size_t(at + i - window.begin), window.name);
    const bool written = byte.written == epoch && byte.writer != thread.number &&
                         !ordered(thread, byte.writer, byte.written_at);
    const bool read = byte.read == epoch && byte.reader != thread.number &&
                      !ordered(thread, byte.reader, byte.read_at);
    const uint16_t who = written ? byte.writer : byte.reader;
    byte.written = epoch;
    byte.writer = thread.number;
    byte.written_at = warps[thread.warp].barriers;
    if (!written && !read) continue;
    if (copied) race(thread, "copies into", at + i, who, written);
    byte.writer = MANY;
    if (!doubt.writer) {
      doubt = {&thread, at + i, {}, bytes - i < 64 ? bytes - i : 64, who, written};
      memcpy(doubt.before, at + i, doubt.bytes);
    }
  }
}

Window* window_of(const char* at) {
  for (Window* window : {&dynamic_window, &static_window})
    if (at >= window->begin && at < window->begin + window->bytes) return window;
  return nullptr;
}

// ---------------------------------------------------------------------------- accesses to memory

// What a kernel may read beside what it was given: its arguments, and tables of the text, which are
// in those segments of this library that nothing may write to.
struct Span {
  const char *begin, *end;
};
std::vector<Span> constants;

int find_constants(dl_phdr_info* library, size_t, void*) {
  std::vector<Span> found;
  bool own = false;
  for (int i = 0; i < library->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = library->dlpi_phdr[i];
    const char* begin = reinterpret_cast<const char*>(library->dlpi_addr + segment.p_vaddr);
    const Span span = {begin, begin + segment.p_memsz};
    if (segment.p_type != PT_LOAD) continue;
    own |= dynamic_memory >= span.begin && dynamic_memory < span.end;
    if (!(segment.p_flags & PF_W)) found.push_back(span);
  }
  if (own) constants = found;
  return own;
}

bool is_constant(const char* at) {
  if (size_t(at - reinterpret_cast<char*>(kernel_arguments)) < sizeof kernel_arguments) return true;
  for (const Span& span : constants)
    if (at >= span.begin && at < span.end) return true;
  return false;
}

void outside(Thread& thread, char* at, size_t bytes, const char* does) {
  const bool dynamic = at >= dynamic_memory && at < dynamic_memory + MOST_DYNAMIC_BYTES;
  if (dynamic)
    fault(thread, "%s %zu bytes at byte %zu of dynamic shared memory, of which there are %zu", does,
          bytes, size_t(at - dynamic_memory), dynamic_window.bytes);
  const size_t behind = size_t(at - static_window.begin - static_window.bytes);
  if (static_window.bytes && behind < STATIC_REACH)
    fault(thread, "%s %zu bytes at byte %zu of static shared memory, of which there are %zu", does,
          bytes, size_t(at - static_window.begin), static_window.bytes);
  const Region* nearest = nullptr;
  size_t least = GAP_BYTES / 2;
  for (const Region& region : regions) {
    const size_t after = size_t(at - region.begin), before = size_t(region.begin - at);
    const size_t far = at >= region.begin ? (after > region.bytes ? after - region.bytes : 0) : before;
    if (far < least) least = far, nearest = &region;
  }
  if (!nearest) fault(thread, "%s %zu bytes outside all memory it was given", does, bytes);
  fault(thread, "%s %zu bytes at byte %td of %s, which has %zu bytes", does, bytes,
        at - nearest->begin, nearest->name, nearest->bytes);
}

void touch(Thread& thread, char* at, size_t bytes, bool write) {
  settle();
  if (size_t(at - stacks) < stacks_bytes) return;
  if (Window* window = window_of(at)) {
    if (size_t(window->begin + window->bytes - at) < bytes)
      fault(thread, "%s %zu bytes at byte %zu of %s, of which there are %zu",
            write ? "writes" : "reads", bytes, size_t(at - window->begin), window->name,
            window->bytes);
    if (write)
      write_shared(thread, *window, at, bytes, false);
    else
      read_shared(thread, *window, at, bytes);
    return;
  }
  for (const Region& region : regions) {
    if (at < region.begin || at + bytes > region.begin + region.bytes) continue;
    if (write && !region.writable) fault(thread, "writes to %s, which it may only read", region.name);
    return;
  }
  if (write || !is_constant(at)) outside(thread, at, bytes, write ? "writes" : "reads");
}

void touch_whole(void* at, size_t bytes, bool write) {
  if (uintptr_t(at) % bytes)
    fault(*current, "%s %zu bytes at an address that is no multiple of %zu",
          write ? "writes" : "reads", bytes, bytes);
  touch(*current, static_cast<char*>(at), bytes, write);
}

// ------------------------------------------------------------------------------------ scheduling

void wait(State state, int line) {
  settle();
  current->state = state;
  current->line = line;
  leave();
}

Thread* lane_of(const Warp& warp, int lane) {
  return lane < warp.threads ? &threads[warp.first + lane] : nullptr;
}

// Lets the lanes of a mask meet if all of them are there; those that ended are not waited for.
void try_meeting(Warp& warp, unsigned mask, int line) {
  void* own[WARP] = {};
  cuda_performed perform = nullptr;
  for (int lane = 0; lane < warp.threads; ++lane) {
    Thread& thread = *lane_of(warp, lane);
    if (!(mask >> lane & 1) || thread.state == ENDED) continue;
    if (thread.state != AT_MEETING || thread.mask != mask || thread.line != line) return;
    own[lane] = thread.own;
    perform = thread.perform;
  }
  if (!perform) return;
  perform(own);
  for (int lane = 0; lane < warp.threads; ++lane)
    if (own[lane]) lane_of(warp, lane)->state = READY;
}

void begin_thread() {
  kernel(kernel_arguments);
  settle();
  current->state = ENDED;
  ++ended;
  Warp& warp = warps[current->warp];
  for (int lane = 0; lane < warp.threads; ++lane) {
    Thread& thread = *lane_of(warp, lane);
    if (thread.state == AT_MEETING) try_meeting(warp, thread.mask, thread.line);
  }
  leave();
}

// Lanes that asked which are active, once no lane can go on: those of one line are active together.
bool release_masks(Warp& warp) {
  int line = 0;
  for (int lane = 0; lane < warp.threads; ++lane) {
    Thread& thread = *lane_of(warp, lane);
    if (thread.state == AT_MASK && (!line || thread.line < line)) line = thread.line;
  }
  unsigned mask = 0;
  for (int lane = 0; lane < warp.threads; ++lane) {
    Thread& thread = *lane_of(warp, lane);
    if (thread.state == AT_MASK && thread.line == line) mask |= 1u << lane;
  }
  for (int lane = 0; lane < warp.threads; ++lane) {
    if (!(mask >> lane & 1)) continue;
    lane_of(warp, lane)->mask = mask;
    lane_of(warp, lane)->state = READY;
  }
  return mask;
}

void run_warp(Warp& warp) {
  for (bool ran = true; ran && !failed;) {
    ran = false;
    const unsigned first = drawn(warp.threads), forwards = drawn(2);
    for (int i = 0; i < warp.threads && !failed; ++i) {
      const unsigned step = forwards ? i : warp.threads - i;
      Thread& thread = *lane_of(warp, (first + step) % warp.threads);
      if (thread.state != READY) continue;
      ran = true;
      current = &thread;
      enter(thread);
    }
    if (!ran && !failed) ran = release_masks(warp);
  }
}

bool is_ready(const Warp& warp) {
  for (int lane = 0; lane < warp.threads; ++lane)
    if (threads[warp.first + lane].state == READY) return true;
  return false;
}

// Opens the barrier at which all threads wait, or says why they never will.
void open_barrier() {
  const Thread* waiting = nullptr;
  for (const Thread& thread : threads) {
    if (thread.state == AT_MEETING)
      return stuck("block (%u, %u, %u): lane %d of warp %d waits at %s in line %d for lanes of mask "
                   "%#x that do not come",
                   block.x, block.y, block.z, thread.lane, thread.warp, thread.what, thread.line,
                   thread.mask);
    if (thread.state != AT_BARRIER) continue;
    if (waiting && waiting->line != thread.line)
      return stuck("block (%u, %u, %u): threads wait at the barrier of line %d, others at that of "
                   "line %d",
                   block.x, block.y, block.z, waiting->line, thread.line);
    waiting = &thread;
  }
  if (ended)
    return stuck("block (%u, %u, %u): %d threads ended without the barrier of line %d, at which the "
                 "others wait",
                 block.x, block.y, block.z, ended, waiting->line);
  barrier_line = waiting->line;
  ++epoch;
  for (Thread& thread : threads) thread.state = READY;
}

void finish_copy(const Copy& copy, Thread& thread) {
  Window& window = *window_of(copy.to);
  for (int i = 0; i < copy.bytes; ++i) {
    Byte& byte = window.known[copy.to + i - window.begin];
    byte.copies = 0;
    byte.written = epoch;
    byte.writer = thread.number;
    byte.written_at = warps[thread.warp].barriers;
  }
  memcpy(copy.to, copy.from, copy.source_bytes);
  memset(copy.to + copy.source_bytes, 0, copy.bytes - copy.source_bytes);
}

void finish_copies(Thread& thread, size_t groups_left) {
  while (thread.groups.size() > groups_left) {
    for (const Copy& copy : thread.groups.front()) finish_copy(copy, thread);
    thread.groups.erase(thread.groups.begin());
  }
}

void run_block() {
  block_epoch = ++epoch;
  barrier_line = ended = 0;
  for (Window* window : {&dynamic_window, &static_window})
    if (window->bytes) memset(window->begin, POISON, window->bytes);
  for (Warp& warp : warps) warp.barriers = 0;
  for (Thread& thread : threads) {
    thread.state = READY;
    prepare(thread, begin_thread);
  }
  while (!failed && ended < int(threads.size())) {
    int ready[MOST_THREADS / WARP], count = 0;
    for (size_t i = 0; i < warps.size(); ++i)
      if (is_ready(warps[i])) ready[count++] = i;
    if (count)
      run_warp(warps[ready[drawn(count)]]);
    else
      open_barrier();
  }
  for (Thread& thread : threads) {  // the block ends when its copies have ended
    thread.groups.push_back(thread.open);
    thread.open.clear();
    if (!failed) finish_copies(thread, 0);
    thread.groups.clear();
  }
}

bool make_threads() {
  const int count = block_size.x * block_size.y * block_size.z;
  const size_t each = STACK_BYTES + GUARD_BYTES;
  stacks_bytes = each * count;
  void* memory = mmap(nullptr, stacks_bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return stacks = nullptr, false;
  stacks = static_cast<char*>(memory);
  threads.assign(count, Thread());
  warps.assign((count + WARP - 1) / WARP, Warp());
  for (int i = 0; i < count; ++i) {
    Thread& thread = threads[i];
    mprotect(stacks + each * i, GUARD_BYTES, PROT_NONE);
    thread.stack = stacks + each * i + GUARD_BYTES;
    thread.index = {i % block_size.x, i / block_size.x % block_size.y,
                    i / block_size.x / block_size.y};
    thread.number = i;
    thread.warp = i / WARP;
    thread.lane = i % WARP;
    Warp& warp = warps[thread.warp];
    warp.first = thread.warp * WARP;
    ++warp.threads;
  }
  return true;
}

}  // namespace

// ------------------------------------------------------------------------- what kernel text calls

extern "C" {

cuda_triple cuda_thread_index() { return current->index; }
cuda_triple cuda_block_index() { return block; }
cuda_triple cuda_block_size() { return block_size; }
cuda_triple cuda_grid_size() { return grid_size; }
unsigned cuda_lane() { return current->lane; }

void cuda_barrier(int line) { wait(AT_BARRIER, line); }

void cuda_meet(unsigned mask, int line, const char* what, void* own, cuda_performed perform) {
  settle();
  if (!(mask >> current->lane & 1))
    fault(*current, "calls %s in line %d with mask %#x, to which its lane %d does not belong", what,
          line, mask, current->lane);
  Thread& thread = *current;
  thread.state = AT_MEETING;
  thread.line = line;
  thread.mask = mask;
  thread.what = what;
  thread.own = own;
  thread.perform = perform;
  try_meeting(warps[thread.warp], mask, line);
  if (thread.state == AT_MEETING) leave();
}

void cuda_warp_barrier(unsigned mask, int line) {
  static char nothing;
  cuda_meet(mask, line, "__syncwarp", &nothing,
            [](void**) { ++warps[current->warp].barriers; });
}

unsigned cuda_active_mask(int line) {
  wait(AT_MASK, line);
  return current->mask;
}

void* cuda_dynamic_shared() { return dynamic_memory; }

uint32_t cuda_shared_address(const void* generic) {
  const char* at = static_cast<const char*>(generic);
  if (at >= dynamic_memory && at < dynamic_memory + MOST_DYNAMIC_BYTES) return at - dynamic_memory;
  if (window_of(at)) return STATIC_ADDRESSES + uint32_t(at - static_window.begin);
  fault(*current, "takes an address for one in shared memory that is none");
}

void* cuda_generic_address(uint32_t shared) {
  if (shared < STATIC_ADDRESSES) return dynamic_memory + shared;
  return static_window.begin + (shared - STATIC_ADDRESSES);
}

void cuda_copy_async(uint32_t to, const void* from, int bytes, int source_bytes) {
  char* into = static_cast<char*>(cuda_generic_address(to));
  char* source = static_cast<char*>(const_cast<void*>(from));
  if (uintptr_t(into) % bytes || uintptr_t(source) % bytes)
    fault(*current, "copies %d bytes from or to an address that is no multiple of %d", bytes, bytes);
  if (source_bytes) touch(*current, source, source_bytes, false);
  settle();
  Window* window = window_of(into);
  if (!window) outside(*current, into, bytes, "copies");
  write_shared(*current, *window, into, bytes, true);
  for (int i = 0; i < bytes; ++i) window->known[into + i - window->begin].copies = 1;
  memset(into, POISON, bytes);
  current->open.push_back({into, source, bytes, source_bytes});
}

void cuda_copy_commit() {
  current->groups.push_back(current->open);
  current->open.clear();
}

void cuda_copy_wait(int groups_left) {
  settle();
  finish_copies(*current, groups_left);
}

struct cuda_matrix {
  Thread* thread;
  uint32_t row;
  int matrices;
  bool transposed;
  uint32_t* into;
};

static void load_matrices(void** own) {
  const char* rows[WARP];
  cuda_matrix** lanes = reinterpret_cast<cuda_matrix**>(own);
  for (int lane = 0; lane < WARP; ++lane) {
    if (!lanes[lane]) fault(*current, "loads a matrix in a warp with fewer than 32 threads");
    if (lane >= 8 * lanes[lane]->matrices) continue;
    char* row = static_cast<char*>(cuda_generic_address(lanes[lane]->row));
    if (uintptr_t(row) % 16)
      fault(*lanes[lane]->thread, "loads a row of a matrix from an address that is no multiple of 16");
    Window* window = window_of(row);
    if (!window) outside(*lanes[lane]->thread, row, 16, "loads");
    read_shared(*lanes[lane]->thread, *window, row, 16);
    rows[lane] = row;
  }
  for (int lane = 0; lane < WARP; ++lane)
    for (int i = 0; i < lanes[lane]->matrices; ++i) {
      const int a = lane / 4, b = lane % 4 * 2;
      uint16_t pair[2];
      if (lanes[lane]->transposed)
        for (int e = 0; e < 2; ++e) memcpy(&pair[e], rows[8 * i + b + e] + 2 * a, 2);
      else
        memcpy(pair, rows[8 * i + a] + 2 * b, 4);
      memcpy(&lanes[lane]->into[i], pair, 4);
    }
}

void cuda_load_matrix(uint32_t row, int matrices, bool transposed, uint32_t* into, int line) {
  cuda_matrix own = {current, row, matrices, transposed, into};
  cuda_meet(0xffffffffu, line, "ldmatrix", &own, load_matrices);
}

static float element(const char* kind, uint32_t bits, int index) {
  const uint32_t wide = bits >> (16 * index) << 16;
  if (!strcmp(kind, "f16")) {
    _Float16 half;
    const uint16_t narrow = wide >> 16;
    memcpy(&half, &narrow, 2);
    return half;
  }
  if (kind[0] == 's') return int8_t(bits >> (8 * index));
  if (kind[0] == 'u') return uint8_t(bits >> (8 * index));
  const uint32_t single = !strcmp(kind, "bf16") ? wide : bits & ~0x1fffu;  // tf32 keeps 10 bits
  float value;
  memcpy(&value, &single, 4);
  return value;
}

static void multiply(void** own) {
  cuda_product** lanes = reinterpret_cast<cuda_product**>(own);
  for (int lane = 0; lane < WARP; ++lane)
    if (!lanes[lane]) fault(*current, "multiplies matrices in a warp with fewer than 32 threads");
  const char* kind = lanes[0]->kind;
  const bool whole = kind[0] == 's' || kind[0] == 'u';
  const int per = whole ? 4 : !strcmp(kind, "tf32") ? 1 : 2;
  float a[16][32], b[32][8];
  for (int lane = 0; lane < WARP; ++lane)
    for (int e = 0; e < per; ++e) {
      const int group = lane / 4, column = lane % 4 * per + e;
      for (int r = 0; r < lanes[lane]->a_registers; ++r)
        a[group + 8 * (r & 1)][column + 4 * per * (r >> 1)] = element(kind, lanes[lane]->a[r], e);
      for (int r = 0; r < lanes[lane]->b_registers; ++r)
        b[column + 4 * per * r][group] = element(kind, lanes[lane]->b[r], e);
    }
  const int depth = 4 * per * lanes[0]->b_registers;
  for (int lane = 0; lane < WARP; ++lane) {
    cuda_product& mine = *lanes[lane];
    for (int q = 0; q < 4; ++q) {
      const int row = lane / 4 + 8 * (q >> 1), column = lane % 4 * 2 + (q & 1);
      if (whole) {
        int32_t sum;
        memcpy(&sum, &mine.c[q], 4);
        for (int k = 0; k < depth; ++k) sum += int32_t(a[row][k]) * int32_t(b[k][column]);
        memcpy(&mine.d[q], &sum, 4);
        continue;
      }
      float sum = mine.half_sums ? element("f16", mine.c[q >> 1], q & 1) : 0;
      if (!mine.half_sums) memcpy(&sum, &mine.c[q], 4);
      for (int k = 0; k < depth; ++k) sum += a[row][k] * b[k][column];
      if (mine.half_sums) {
        const _Float16 half = sum;
        memcpy(reinterpret_cast<char*>(&mine.d[q >> 1]) + 2 * (q & 1), &half, 2);
      } else {
        memcpy(&mine.d[q], &sum, 4);
      }
    }
  }
}

void cuda_multiply(cuda_product* product, int line) {
  cuda_meet(0xffffffffu, line, "mma.sync", product, multiply);
}

void cuda_atomic(const void* address, size_t bytes) {
  char* at = static_cast<char*>(const_cast<void*>(address));
  settle();
  Window* window = window_of(at);
  if (!window) return touch(*current, at, bytes, true);
  for (size_t i = 0; i < bytes; ++i) {
    Byte& byte = window->known[at + i - window->begin];
    if (byte.written < block_epoch)
      fault(*current, "reads byte %zu of %s, which no thread has written",
            size_t(at + i - window->begin), window->name);
    byte.written = epoch;
    byte.writer = MANY;
  }
}

// Before each access, by -fsanitize=thread. Those of one size are aligned to it by their type.
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
#define ACCESS(n)                                                                        \
  void __tsan_read##n(void* at) { touch_whole(at, n, false); }                           \
  void __tsan_write##n(void* at) { touch_whole(at, n, true); }                           \
  void __tsan_volatile_read##n(void* at) { touch_whole(at, n, false); }                  \
  void __tsan_volatile_write##n(void* at) { touch_whole(at, n, true); }                  \
  void __tsan_unaligned_read##n(void* at) { touch(*current, (char*)at, n, false); }      \
  void __tsan_unaligned_write##n(void* at) { touch(*current, (char*)at, n, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
void __tsan_read_range(void* at, size_t bytes) { touch(*current, (char*)at, bytes, false); }
void __tsan_write_range(void* at, size_t bytes) { touch(*current, (char*)at, bytes, true); }
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {  // clang's, of structures
  touch(*current, (char*)from, bytes, false);
  touch(*current, (char*)to, bytes, true);
  return memcpy(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  touch(*current, (char*)to, bytes, true);
  return memset(to, value, bytes);
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Runs a launch. `values` are the arguments, eight bytes each; those at `places` are arrays, which
// `names`, `data`, `bytes` and `writable` describe. A kernel works on copies; those of writable
// arrays are copied back. The answer is null, or what went wrong.
struct cuda_launch {
  unsigned grid[3], block[3];
  size_t dynamic_bytes, static_bytes;
  char* static_memory;
  uint64_t seed;
  size_t blocks;  // at most so many are executed, all where it is 0
  void (*kernel)(void**);
  void* const* values;
  int arguments, arrays;
  const char** names;
  void** data;
  const size_t* bytes;
  const int* writable;
  const int* places;
};

__attribute__((visibility("default"))) const char* cuda_run(const cuda_launch* launch) {
  const cuda_launch& it = *launch;
  grid_size = {it.grid[0], it.grid[1], it.grid[2]};
  block_size = {it.block[0], it.block[1], it.block[2]};
  kernel = it.kernel;
  if (it.arguments > MOST_ARGUMENTS) return "it has more than 256 arguments";
  std::copy(it.values, it.values + it.arguments, kernel_arguments);
  random_state = (it.seed + 1) * 0x9e3779b97f4a7c15ull | 1;
  failed = false;
  doubt.writer = nullptr;
  epoch = 0;
  dynamic_window = {dynamic_memory, it.dynamic_bytes, "dynamic shared memory", {}};
  static_window = {it.static_memory, it.static_bytes, "static shared memory", {}};
  for (Window* window : {&dynamic_window, &static_window})
    window->known.assign(window->bytes, Byte());

  size_t whole = GAP_BYTES;
  for (int i = 0; i < it.arrays; ++i) whole += (it.bytes[i] + 4095) / 4096 * 4096 + GAP_BYTES;
  char* memory = static_cast<char*>(mmap(nullptr, whole, PROT_READ | PROT_WRITE,
                                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (memory == MAP_FAILED || !make_threads()) return "there is not enough memory to execute it";
  regions.clear();
  char* next = memory + GAP_BYTES;
  for (int i = 0; i < it.arrays; ++i) {
    regions.push_back({it.names[i], next, it.bytes[i], it.writable[i] != 0});
    memcpy(next, it.data[i], it.bytes[i]);
    kernel_arguments[it.places[i]] = next;
    next += (it.bytes[i] + 4095) / 4096 * 4096 + GAP_BYTES;
  }

  dl_iterate_phdr(find_constants, nullptr);
  const size_t blocks = size_t(it.grid[0]) * it.grid[1] * it.grid[2];
  std::vector<size_t> order(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    const size_t j = drawn(i + 1);
    order[i] = order[j];
    order[j] = i;
  }
  if (it.blocks && it.blocks < blocks) order.resize(it.blocks);
  for (size_t number : order) {
    if (failed) break;
    block = {unsigned(number % it.grid[0]), unsigned(number / it.grid[0] % it.grid[1]),
             unsigned(number / it.grid[0] / it.grid[1])};
    run_block();
  }
  for (int i = 0; i < it.arrays; ++i)
    if (it.writable[i]) memcpy(it.data[i], regions[i].begin, it.bytes[i]);
  munmap(memory, whole);
  munmap(stacks, stacks_bytes);
  threads.clear();
  return failed ? message : nullptr;
}

}
