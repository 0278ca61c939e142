// SM2 signature verification (GB/T 32918.2): t = (r + s) mod n, (x, y) = s G + t Q, valid where (e + x) mod n = r.
#include "curve_enrolled.cuh"
#include "sm2_prepare.cuh"
#if defined(CRYPTO_MB)
#include "curve_crypto_mb.cuh"
#endif
#if !TARGET_GPU
#include "curve_key_lanes.cuh"
#endif

typedef Ladder<Sm2Curve> Sm2Ladder;
typedef Comb<Sm2Curve> Sm2Comb;

DEVICE void table_base(u8* state, u32 index) { Sm2Comb::build_base((u32*)state, index); }
DEVICE void table_entry(u8* state, u32 index) { Sm2Comb::build_entry((u32*)state, index); }

DEVICE void finish(const Batch& batch, const Lane& lane, u32 item) {
    finish_verify_item<Sm2Curve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state);
}

PLUGIN_INFO(Sm2Comb::BYTES + Slots::BYTES, Planes::BYTES, Sm2Ladder::LANE_BYTES)

STATE_STAGE(sm2_table_bases, table_base, Sm2Comb::BASES, 32)
STATE_STAGE(sm2_table_entries, table_entry, Sm2Comb::ENTRIES, 128)

#if defined(INTERLEAVED)
#include "sm2_interleaved.cuh"
#else
template <bool LATER>
DEVICE bool prepare_item(const Batch& batch, const Lane& lane, u32 item) {
    return prepare<false, Rows, LATER>(batch, lane, item);
}
#endif
#if TARGET_GPU
ITEM_STAGE(sm2_prepare, prepare_item<false>, 128, 3)
#else
DEVICE void prepare_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
    prepare_in_lanes<Sm2Curve, VERIFY_PLANES>(
        batch, begin, end, KEY_NOT_ON_CURVE, [&](u32 item) { prepare_item<false>(batch, lane, item); },
        [&](u32 item) { return prepare_item<true>(batch, lane, item); });
}
RANGE_STAGE(sm2_prepare, prepare_range)
#endif

#if defined(PAPER)
#include "sm2_paper.cuh"
DEVICE void verify_as_in_the_paper(const Batch& batch, const Lane& lane, u32 item) {
    verify_item_as_in_the_paper<Sm2Curve, VERIFY_PLANES>(batch, lane, item);
}
ITEM_STAGE(sm2_verify, verify_as_in_the_paper, PAPER_THREADS, 512 / PAPER_THREADS)
#elif TARGET_GPU
DEVICE void verify(const Batch& batch, const Lane& lane, u32 item) {
    verify_item<Sm2Curve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state);
}
ITEM_STAGE(sm2_verify, verify, VERIFY_THREADS, 1)
#else
DEVICE void verify_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
#if defined(CRYPTO_MB)
    crypto_mb::verify_range<Sm2Curve, VERIFY_PLANES>(batch, lane, begin, end, (const u32*)batch.state);
#else
    verify_in_lanes<Sm2Curve, VERIFY_PLANES>(batch, lane, begin, end, (const u32*)batch.state);
#endif
}
RANGE_STAGE(sm2_verify, verify_range)
#endif
ITEM_STAGE(sm2_finish, finish, FINISH_THREADS, 1)

#if TARGET_GPU && defined(TEAM_ITEMS) && TEAM_ITEMS > 0
#include "curve_team.cuh"
DEVICE void verify_by_team(const Batch& batch, const Lane& lane, u32 item) {
    verify_item_by_team<Sm2Curve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state);
}
FEW_STAGE(sm2_verify, verify_by_team, TEAM_ITEMS, TEAM_LANES, TEAM_BLOCK, 1)
#endif

#if KEY_SLOTS > 0

DEVICE void tabulate(const Batch& batch, const Lane& lane, u32 item) {
    enroll_item<Sm2Curve, true>(batch, lane, item, Algorithm::SM2, key_slots(batch));
}
DEVICE void enroll(const Batch& batch, const Lane& lane, u32 item) {
    enroll_item<Sm2Curve, false>(batch, lane, item, Algorithm::SM2, key_slots(batch));
}

DEVICE void empty_slot(u8* state, u32 index) { Slots::empty((u32*)(state + Sm2Comb::BYTES), index); }

DEVICE void finish_enrolled(const Batch& batch, const Lane& lane, u32 item) {
    finish_enrolled_item<Sm2Curve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state, key_slots(batch));
}

STATE_STAGE(sm2_empty_slots, empty_slot, Slots::SLOTS, 128)

ITEM_STAGE(sm2_tabulate, tabulate, TABULATE_THREADS, 1)
ITEM_STAGE(sm2_enroll, enroll, 128, 1)
ITEM_STAGE(sm2_prepare_enrolled, prepare<true>, 128, 3)
#if TARGET_GPU
DEVICE void verify_enrolled(const Batch& batch, const Lane& lane, u32 item) {
    verify_enrolled_item<Sm2Curve, VERIFY_PLANES>(batch, lane, item, (const u32*)batch.state, key_slots(batch));
}
ITEM_STAGE(sm2_verify_enrolled, verify_enrolled, ENROLLED_THREADS, ENROLLED_BLOCKS)
#else
DEVICE void verify_enrolled_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
    const u32 *const comb = (const u32*)batch.state, *const slots = key_slots(batch);
    verify_enrolled_in_lanes<Sm2Curve, VERIFY_PLANES>(batch, lane, begin, end, comb, slots);
}
RANGE_STAGE(sm2_verify_enrolled, verify_enrolled_range)
#endif

#if TARGET_GPU && defined(COMB_TEAM_ITEMS) && COMB_TEAM_ITEMS > 0
#include "curve_enrolled_team.cuh"
DEVICE void verify_enrolled_by_team(const Batch& batch, const Lane& lane, u32 item) {
    const u32* const comb = (const u32*)batch.state;
    verify_enrolled_item_by_team<Sm2Curve, VERIFY_PLANES>(batch, lane, item, comb, key_slots(batch));
}
FEW_STAGE(sm2_verify_enrolled, verify_enrolled_by_team, COMB_TEAM_ITEMS, TEAM_LANES, TEAM_BLOCK, 1)
#endif
ITEM_STAGE(sm2_finish_enrolled, finish_enrolled, ENROLLED_THREADS, ENROLLED_BLOCKS)

#endif
