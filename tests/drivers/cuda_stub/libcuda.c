// A libcuda.so.1 for machines without a GPU: the calls that verifier/drivers makes, checked as a strict driver
// would, and kernels run by the CPU. An image is a shared library for the CPU in a cubin's place. It shows that the
// calls, their order and their arguments are right, not that a GPU would agree: the tests marked gpu show that.
//
// STUB_FAIL="NAME=ERROR,..." makes calls of NAME give the error, and all later calls too: a sticky error. With
// STUB_ONCE=1 it is no error of other calls.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <elf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef int Result;
typedef uint64_t Address;
enum {
    OK = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500
};
enum { UNITS = 4, THREADS = 128, BLOCKS = 2, SHARED_MOST = 200 << 10, BATCH_BYTES = 304 };
static const size_t MEMORY = 1ull << 33;

typedef struct {
    void* library;
    int file;
} Module;
typedef struct {
    void (*run)(void*, unsigned, unsigned, unsigned);
    int shared;
} Function;

typedef struct {
    int type, id;
} Location;

static __thread void* current;
static int context, retained, lost;
static size_t used;

static Result enter(const char* name) {
    char key[128];
    snprintf(key, sizeof key, "%s=", name);
    const char* const fail = getenv("STUB_FAIL");
    const char* const found = fail ? strstr(fail, key) : NULL;
    const int error = found ? atoi(found + strlen(key)) : lost;
    if (!getenv("STUB_ONCE")) lost = error;
    return error;
}
#define ENTER(condition)                                           \
    do {                                                           \
        const Result failed = enter(__func__);                     \
        if (failed) return failed;                                 \
        if (!(condition)) {                                        \
            fprintf(stderr, "%s: not %s\n", __func__, #condition); \
            return INVALID_VALUE;                                  \
        }                                                          \
    } while (0)
#define CURRENT(condition)                                            \
    do {                                                              \
        if (current != &context || !retained) return INVALID_CONTEXT; \
        ENTER(condition);                                             \
    } while (0)

Result cuInit(unsigned flags) {
    ENTER(flags == 0);
    return OK;
}
Result cuDriverGetVersion(int* version) {
    *version = 13000;
    return OK;
}
Result cuGetErrorString(Result error, const char** text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : "an error";
    return OK;
}
Result cuDeviceGetCount(int* count) {
    *count = 1;
    return OK;
}
Result cuDeviceGet(int* device, int index) {
    if (index) return INVALID_DEVICE;
    *device = 0;
    return OK;
}
Result cuDeviceGetName(char* name, int length, int device) {
    snprintf(name, length, "no GPU");
    return device;
}
Result cuDeviceTotalMem_v2(size_t* bytes, int device) {
    *bytes = MEMORY;
    return device;
}
Result cuDeviceGetAttribute(int* value, int attribute, int device) {
    switch (attribute) {
        case 16:
            *value = UNITS;
            break;
        case 75:
            *value = 9;
            break;  // compute capability
        case 76:
            *value = 0;
            break;
        case 89:
            *value = 1;
            break;  // concurrent managed access
        default:
            fprintf(stderr, "unknown attribute %d\n", attribute);
            return INVALID_VALUE;
    }
    return device;
}
Result cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    ENTER(flags == (4 | 16) || flags == (1 | 16));
    return device;
}
Result cuDevicePrimaryCtxRetain(void** to, int device) {
    ENTER(device == 0);
    retained++;
    *to = &context;
    return OK;
}
Result cuDevicePrimaryCtxRelease_v2(int device) {
    ENTER(device == 0 && retained > 0 && used == 0);
    retained--;
    return OK;
}
Result cuCtxSetCurrent(void* to) {
    ENTER(to == &context);
    current = to;
    return OK;
}
Result cuCtxSynchronize(void) {
    CURRENT(1);
    return OK;
}

Result cuMemGetInfo_v2(size_t* free, size_t* total) {
    CURRENT(1);
    *total = MEMORY;
    *free = MEMORY - used;
    return OK;
}
Result cuMemAlloc_v2(Address* to, size_t bytes) {
    CURRENT(bytes > 0);
    if (bytes > MEMORY - used) return OUT_OF_MEMORY;
    size_t* const memory = aligned_alloc(256, (bytes + 511) / 256 * 256);
    memory[0] = bytes;
    used += bytes;
    *to = (Address)memory + 256;
    memset((void*)*to, 0xCD, bytes);
    return OK;
}
Result cuMemFree_v2(Address address) {
    CURRENT(address);
    size_t* const memory = (size_t*)(address - 256);
    used -= memory[0];
    free(memory);
    return OK;
}
Result cuMemAllocManaged(Address* to, size_t bytes, unsigned flags) {
    CURRENT(flags == 1);
    return cuMemAlloc_v2(to, bytes);
}
Result cuMemAdvise_v2(Address address, size_t bytes, int advice, Location location) {
    // Preferred location: the host. Accessed by: the device.
    CURRENT(address && bytes && location.id == 0 &&
            ((advice == 3 && location.type == 2) || (advice == 5 && location.type == 1)));
    return OK;
}
Result cuMemHostAlloc(void** to, size_t bytes, unsigned flags) {
    CURRENT(flags == 3);
    return cuMemAlloc_v2((Address*)to, bytes);
}
Result cuMemFreeHost(void* memory) { return cuMemFree_v2((Address)memory); }
Result cuMemHostRegister_v2(void* memory, size_t bytes, unsigned flags) {
    CURRENT(memory && bytes && flags == 3);
    return OK;
}
Result cuMemHostUnregister(void* memory) {
    CURRENT(memory);
    return OK;
}
Result cuMemHostGetDevicePointer_v2(Address* to, void* memory, unsigned flags) {
    CURRENT(flags == 0);
    *to = (Address)memory;
    return OK;
}
Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
    CURRENT(stream);
    memcpy((void*)to, from, bytes);
    return OK;
}
Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
    CURRENT(stream);
    memcpy(to, (void*)from, bytes);
    return OK;
}
Result cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
    CURRENT(1);
    memcpy(to, (void*)from, bytes);
    return OK;
}
Result cuMemsetD8Async(Address to, unsigned char value, size_t bytes, void* stream) {
    CURRENT(stream);
    memset((void*)to, value, bytes);
    return OK;
}

Result cuCtxGetStreamPriorityRange(int* least, int* greatest) {
    CURRENT(1);
    *least = 0, *greatest = -5;
    return OK;
}
Result cuStreamCreateWithPriority(void** stream, unsigned flags, int priority) {
    CURRENT(flags == 1 && (priority == 0 || priority == -5));
    *stream = malloc(1);
    return OK;
}
Result cuStreamDestroy_v2(void* stream) {
    CURRENT(stream);
    free(stream);
    return OK;
}
Result cuStreamSynchronize(void* stream) {
    CURRENT(stream);
    return OK;
}
Result cuStreamWaitEvent(void* stream, void* event, unsigned flags) {
    CURRENT(stream && event && flags == 0);
    return OK;
}
Result cuEventCreate(void** event, unsigned flags) {
    CURRENT(flags <= 1);
    *event = calloc(1, sizeof(struct timespec));
    return OK;
}
Result cuEventRecord(void* event, void* stream) {
    CURRENT(event && stream);
    return clock_gettime(CLOCK_MONOTONIC, event);
}
Result cuEventSynchronize(void* event) {
    CURRENT(event);
    return OK;
}
Result cuEventQuery(void* event) {
    CURRENT(event);
    return OK;
}
Result cuEventDestroy_v2(void* event) {
    CURRENT(event);
    free(event);
    return OK;
}
Result cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
    CURRENT(from && to);
    const struct timespec *a = from, *b = to;
    *milliseconds = (b->tv_sec - a->tv_sec) * 1e3f + (b->tv_nsec - a->tv_nsec) / 1e6f;
    return OK;
}

Result cuModuleLoadData(void** to, const void* image) {
    CURRENT(image);
    const Elf64_Ehdr* const header = image;
    if (memcmp(header->e_ident, ELFMAG, SELFMAG)) return INVALID_IMAGE;
    const size_t bytes = header->e_shoff + (size_t)header->e_shnum * header->e_shentsize;
    Module* const module = malloc(sizeof *module);
    char path[64];
    module->file = memfd_create("stub", 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", module->file);
    if (write(module->file, image, bytes) != (ssize_t)bytes) return INVALID_IMAGE;
    module->library = dlopen(path, RTLD_NOW);
    *to = module;
    return module->library ? OK : INVALID_IMAGE;
}
Result cuModuleUnload(Module* module) {
    CURRENT(module);
    dlclose(module->library);
    close(module->file);
    free(module);
    return OK;
}
Result cuModuleGetFunction(void** to, Module* module, const char* name) {
    CURRENT(module);
    void* const symbol = dlsym(module->library, name);
    if (!symbol) return NOT_FOUND;
    Function* const function = calloc(1, sizeof *function);  // as long as the process: a stub may
    function->run = symbol;
    *to = function;
    return OK;
}
Result cuModuleGetGlobal_v2(Address* to, size_t* bytes, Module* module, const char* name) {
    CURRENT(module);
    *to = (Address)dlsym(module->library, name);
    *bytes = strcmp(name, "plugin_info") ? 4 : 32;
    return *to ? OK : NOT_FOUND;
}
Result cuFuncLoad(Function* function) {
    CURRENT(function);
    return OK;
}
Result cuFuncGetAttribute(int* value, int attribute, Function* function) {
    CURRENT(function && attribute == 0);
    *value = THREADS;
    return OK;
}
Result cuFuncSetAttribute(Function* function, int attribute, int value) {
    CURRENT(function && attribute == 8);
    if (value > SHARED_MOST) return INVALID_VALUE;
    function->shared = value;
    return OK;
}
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Function* function, int threads, size_t shared) {
    CURRENT(threads == THREADS && (int)shared == function->shared);
    *blocks = BLOCKS;
    return OK;
}
Result cuLaunchKernel(Function* function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty,
                      unsigned tz, unsigned shared, void* stream, void** parameters, void** extra) {
    CURRENT(x >= 1 && x <= UNITS * BLOCKS && y == 1 && z == 1 && threads == THREADS && ty == 1 && tz == 1);
    ENTER(stream && !extra && (int)shared == function->shared);
    unsigned char batch[BATCH_BYTES];
    unsigned items;
    memcpy(batch, parameters[0], sizeof batch);
    memcpy(&items, batch, sizeof items);
    function->run(batch, 0, items, 0);
    return OK;
}

Result cuGetProcAddress_v2(const char* name, void** to, int version, uint64_t flags, int* status) {
    void* const self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    char newer[128];
    snprintf(newer, sizeof newer, "%s_v2", name);
    *to = version >= 3020 ? dlsym(self, newer) : NULL;
    if (!*to) *to = dlsym(self, name);
    if (status) *status = *to ? 0 : 1;
    return *to || flags > 2 ? OK : NOT_FOUND;
}
