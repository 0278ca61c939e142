// Stages as CUDA kernels. Every stage is `extern "C" __global__ void name(const Batch)`; blocks take equal,
// contiguous shares of the batch's warps, so any grid size is right and one block an SM is enough.
#pragma once

DEVICE void sync(const Lane& lane) {
#if INLINE_PTX
    asm volatile("bar.sync 1, %0;" ::"r"(lane.members) : "memory");
#endif
}

// Calls body(item, lane) for every item of this block's share, padding the last warp with dead lanes. TEAM lanes in a
// row, a power of two, have the same item.
template <u32 THREADS, u32 TEAM = 1, class Body>
DEVICE void for_each_item(u32 items, Body body) {
    constexpr u32 WARP_ITEMS = 32 / TEAM;
    if (items == 0) return;
    const u32 warps = (items + WARP_ITEMS - 1) / WARP_ITEMS;
    const u32 first = (u32)((u64)blockIdx.x * warps / gridDim.x);
    const u32 last = (u32)((u64)(blockIdx.x + 1) * warps / gridDim.x);
    const u32 warp = threadIdx.x / 32;
    NO_UNROLL
    for (u32 base = first; base < last; base += THREADS / 32) {
        const u32 active = last - base < THREADS / 32 ? last - base : THREADS / 32;
        if (warp >= active) break;
        const u32 item = (base + warp) * WARP_ITEMS + threadIdx.x % 32 / TEAM;
        const bool live = item < items;
        const Lane lane = {blockIdx.x * THREADS + threadIdx.x, threadIdx.x, active * 32, live};
        body(live ? item : items - 1, lane);
    }
}

// The kernel that follows the last stage of every operation: codes to bitmaps, a warp's votes in one word.
extern "C" __global__ void __launch_bounds__(256) publish(const Batch batch) {
    for_each_item<256>(batch.items, [&](u32 item, const Lane& lane) {
        const u8 code = batch.codes[item];
        const u32 valid = __ballot_sync(~0u, lane.live && code == VALID);
        const u32 decided = __ballot_sync(~0u, lane.live && code != UNDECIDED && code != RETRY);
        if (threadIdx.x % 32 == 0) {
            batch.valid[item / 32] = valid;
            batch.decided[item / 32] = decided;
        }
    });
}

#define PLUGIN_INFO(state_bytes, scratch_item_bytes, scratch_lane_bytes)                       \
    extern "C" __constant__ const PluginInfo plugin_info = {ABI_VERSION, (u32)sizeof(Batch), state_bytes, \
                                                            scratch_item_bytes, scratch_lane_bytes};

#define ITEM_STAGE(name, function, threads, blocks_per_sm)                                                  \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name(const Batch batch) {          \
        for_each_item<threads>(batch.items, [&](u32 item, const Lane& lane) { function(batch, lane, item); }); \
    }

// In the place of the stage `name` for launches over at most `most` items a multiprocessor: `team` lanes have an item, and all lanes
// of a warp call `function`, so that they may use shuffles.
#define FEW_STAGE(name, function, most, team, threads, blocks_per_sm)                                  \
    extern "C" __constant__ const u32 name##_few_items = most;                                          \
    extern "C" __constant__ const u32 name##_few_warp_items = 32 / (team);                              \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name##_few(const Batch batch) { \
        for_each_item<threads, team>(batch.items,                                                       \
                                     [&](u32 item, const Lane& lane) { function(batch, lane, item); }); \
    }

#define GROUP_STAGE(name, function, group, threads, blocks_per_sm)                                     \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm) name(const Batch batch) {     \
        const u32 groups = (batch.items + (group)-1) / (group);                                        \
        for_each_item<threads>(groups, [&](u32 first, const Lane& lane) {                              \
            if (lane.live) function(batch, lane, first, groups, (batch.items - first + groups - 1) / groups); \
        });                                                                                            \
    }

#define STATE_STAGE(name, function, count, threads)                                            \
    extern "C" __constant__ const u32 name##_count = count;                                    \
    extern "C" __global__ void __launch_bounds__(threads) name(const Batch batch) {            \
        for_each_item<threads>(batch.items, [&](u32 index, const Lane& lane) {                 \
            if (lane.live) function(batch.state, index);                                       \
        });                                                                                    \
    }
