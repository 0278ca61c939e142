// Stages as C functions. Every stage is `void name(const Batch*, u32 begin, u32 end, u32 lane)` and does the items
// [begin, end); begin is a multiple of 32. The host calls it from several threads with ranges of one batch, each
// with its own lane number.
#pragma once

#define EXPORT extern "C" __attribute__((visibility("default")))

DEVICE void sync(const Lane&) {}

EXPORT void publish(const Batch* batch, u32 begin, u32 end, u32) {
    for (u32 base = begin; base < end; base += 32) {
        u32 valid = 0, decided = 0;
        for (u32 item = base; item < end && item < base + 32; item++) {
            const u8 code = batch->codes[item];
            valid |= (u32)(code == VALID) << (item - base);
            decided |= (u32)(code != UNDECIDED && code != RETRY) << (item - base);
        }
        batch->valid[base / 32] = valid;
        batch->decided[base / 32] = decided;
    }
}

#define PLUGIN_INFO(state_bytes, scratch_item_bytes, scratch_lane_bytes)                                   \
    EXPORT const PluginInfo plugin_info = {ABI_VERSION, (u32)sizeof(Batch), state_bytes, scratch_item_bytes, \
                                           scratch_lane_bytes};

#define ITEM_STAGE(name, function, threads, blocks_per_sm)                     \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32 lane) {       \
        const Lane self = {lane, 0, 1, true};                                  \
        for (u32 item = begin; item < end; item++) function(*batch, self, item); \
    }

// A stage that chooses itself which items of a range it does together: function(batch, lane, begin, end).
#define RANGE_STAGE(name, function)                                      \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32 lane) { \
        const Lane self = {lane, 0, 1, true};                            \
        function(*batch, self, begin, end);                              \
    }

#define GROUP_STAGE(name, function, group, threads, blocks_per_sm)                            \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32 lane) {                      \
        const Lane self = {lane, 0, 1, true};                                                 \
        for (u32 first = begin; first < end; first += (group))                                \
            function(*batch, self, first, 1, end - first < (group) ? end - first : (group));  \
    }

#define STATE_STAGE(name, function, count, threads)                                 \
    EXPORT const u32 name##_count = count;                                          \
    EXPORT void name(const Batch* batch, u32 begin, u32 end, u32) {                 \
        for (u32 index = begin; index < end; index++) function(batch->state, index); \
    }
