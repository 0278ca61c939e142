// The plugin ABI, version 1: what every plugin's kernel source is written against.
//
// One source, two targets. NVRTC compiles it for a GPU, a C++ compiler (freestanding, no C++ library) for the
// CPU. An author writes functions of one item, or of a few items, and names them as stages with the macros at
// the end of this file; launching, bounds, bitmaps and loops come from here.
//
// A launch of an operation is: every code set to UNDECIDED, the operation's stages in the manifest's order,
// then `publish`, which votes the codes into the two bitmaps. Nothing but a finished, error-free launch counts.
#pragma once

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define TARGET_GPU 1
#define DEVICE static __device__ __forceinline__
#define DEVICE_CALL static __device__ __noinline__
#define CONSTANT __constant__ const
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#else
#define TARGET_GPU 0
#define DEVICE static inline __attribute__((always_inline, unused))
#define DEVICE_CALL static __attribute__((noinline, unused))
#define CONSTANT static const
#define UNROLL
#define NO_UNROLL
#endif

// Tests compile the GPU's branches for the CPU, where there is no PTX.
#if TARGET_GPU && !defined(GPU_EMULATED)
#define INLINE_PTX 1
#else
#define INLINE_PTX 0
#endif

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
static_assert(sizeof(u32) == 4 && sizeof(u64) == 8 && sizeof(void*) == 8, "the ABI is for 64-bit targets");

#define ABI_VERSION 1u
constexpr u32 MAX_INPUTS = 6, MAX_OUTPUTS = 2, MAX_PARAMETERS = 14;

// An item's code. 4 to 15 are invalid for a stated reason, from 16 on the item was malformed; both are decided.
// Equal to ProblemCode in verifier.proto where that has a name for it.
enum Code : u8 {
    UNDECIDED = 0,
    VALID = 1,
    INVALID = 2,
    RETRY = 3,  // between stages only: fast formulas left it open; what is still RETRY at the end is undecided
    OUT_OF_RANGE = 4,
    HIGH_S = 5,
    SIGNATURE_LENGTH = 16,
    SIGNATURE_DER = 17,
    RECOVERY_ID = 18,
    KEY_LENGTH = 24,
    KEY_PREFIX = 25,
    KEY_RANGE = 26,
    KEY_NOT_ON_CURVE = 27,
    KEY_SPKI = 28,
    KEY_INDEX = 29,
    INPUT_LENGTH = 32,
};

// All items' values of one field. With `offsets`, item i is data[offsets[i]] up to data[offsets[i + 1]];
// without, it is `stride` bytes at data + i * stride. `data` is biased by the host so that this holds in a
// chunk of a larger batch too.
struct Column {
    const u8* data;
    const u32* offsets;
    u64 stride;
};

struct Bytes {
    const u8* data;
    u32 size;
};

DEVICE Bytes value(const Column& column, u32 item) {
    if (!column.offsets) return {column.data + item * column.stride, (u32)column.stride};
    const u32 begin = column.offsets[item];
    return {column.data + begin, column.offsets[item + 1] - begin};
}

// One launch's view of a batch. Mirrored by verifier/drivers/_abi.py.
struct Batch {
    u32 items;                       // in this launch
    u32 capacity;                    // items that item_scratch has room for, a multiple of 32
    u32 parameters[MAX_PARAMETERS];  // the operation's parameters, in the manifest's order
    Column inputs[MAX_INPUTS];       // the operation's inputs, in the manifest's order
    const u8* constant;              // bytes that all items share (SM2: the user id)
    u64 constant_bytes;
    u32* valid;                      // bit i of word i / 32: item i is valid
    u32* decided;
    u8* codes;                       // one Code an item
    u8* outputs[MAX_OUTPUTS];        // the operation's outputs, in the manifest's order
    u64 output_strides[MAX_OUTPUTS];
    u8* state;                       // built once at load by the state stages
    u8* item_scratch;                // capacity * scratch_item_bytes, laid out as the plugin likes
    u8* lane_scratch;                // lanes * scratch_lane_bytes
};
static_assert(sizeof(Batch) == 304, "mirrored by verifier/drivers/_abi.py");

// A stage that launches itself (plugins/common/modes_gpu.cuh) may say two more things with u32 constants beside it:
// NAME_shared, bytes of dynamic shared memory a block, and NAME_warp_items, items that keep a warp busy (32). A stage
// may have a second kernel NAME_few, which does the same for launches over at most NAME_few_items items a multiprocessor.

// What the host must know of a built plugin; read from the symbol `plugin_info`.
struct PluginInfo {
    u32 abi;
    u32 batch_bytes;
    u64 state_bytes;
    u64 scratch_item_bytes;
    u64 scratch_lane_bytes;
};

// The lane that runs an item: a GPU thread, or one CPU thread.
struct Lane {
    u32 index;    // which lane of the launch: addresses lane_scratch
    u32 thread;   // thread in its block (0 on the CPU): addresses shared arrays
    u32 members;  // threads of this block that take part in this round, a multiple of 32
    bool live;    // false for a padding lane past the last item: it computes, and must write nothing

};

// Keeps the warps of a block in step, which keeps their instructions in the cache. Every member must call it.
DEVICE void sync(const Lane& lane);

#if TARGET_GPU

#include "abi_gpu.cuh"

#else

#include "abi_cpu.cuh"

#endif
