// ECDSA on P-256 and secp256k1: verification, and recovery of keys.
#include "curve_finish.cuh"
#include "ecdsa_enrolled.cuh"
#include "ecdsa_prepare.cuh"
#include "ecdsa_recovered.cuh"

typedef Comb<P256Curve> P256Comb;
typedef Comb<Secp256k1Curve> Secp256k1Comb;

// State: the generators' tables, one behind the other, then the enrolled keys' slots.
template <class C>
DEVICE u32* comb_table(u8* state) {
    return (u32*)(state + (ALGORITHM_OF<C> == Algorithm::ECDSA_P256 ? 0 : P256Comb::BYTES));
}

template <class C>
DEVICE void table_base(u8* state, u32 index) {
    Comb<C>::build_base(comb_table<C>(state), index);
}

template <class C>
DEVICE void table_entry(u8* state, u32 index) {
    Comb<C>::build_entry(comb_table<C>(state), index);
}

template <class C>
DEVICE void verify_finish(const Batch& batch, const Lane& lane, u32 item) {
    finish_verify_item<C, ALL_PLANES>(batch, lane, item, comb_table<C>(batch.state));
}

template <class C>
DEVICE void recover_finish(const Batch& batch, const Lane& lane, u32 item) {
    finish_multiply_item<C, ALL_PLANES>(batch, lane, item, comb_table<C>(batch.state));
}

constexpr u32 P256_LANE = Ladder<P256Curve>::LANE_BYTES, SECP256K1_LANE = Ladder<Secp256k1Curve>::LANE_BYTES;

PLUGIN_INFO(P256Comb::BYTES + Secp256k1Comb::BYTES + KeySlots<P256Curve>::BYTES + KeySlots<Secp256k1Curve>::BYTES,
            Planes::BYTES,
            P256_LANE > SECP256K1_LANE ? P256_LANE : SECP256K1_LANE)

ITEM_STAGE(ecdsa_hash, hash_input, 256, 1)
ITEM_STAGE(ecdsa_address, recovered_address, 256, 1)

#if TARGET_GPU
template <class C>
DEVICE void verify(const Batch& batch, const Lane& lane, u32 item) {
    verify_item<C, ALL_PLANES>(batch, lane, item, comb_table<C>(batch.state));
}
template <class C>
DEVICE void recover(const Batch& batch, const Lane& lane, u32 item) {
    multiply_item<C, ALL_PLANES>(batch, lane, item, comb_table<C>(batch.state));
}
#define PREPARE_STAGE(prefix, C) ITEM_STAGE(prefix##_prepare, prepare_verify<C>, 128, 1)
#define RECOVER_PREPARE_STAGE(prefix, C) ITEM_STAGE(prefix##_recover_prepare, prepare_recover<C>, 128, 1)
#define VERIFY_STAGE(prefix, C) ITEM_STAGE(prefix##_verify, verify<C>, VERIFY_THREADS, 1)
#define RECOVER_STAGE(prefix, C) ITEM_STAGE(prefix##_recover_point, recover<C>, VERIFY_THREADS, 1)
#else
#include "curve_key_lanes.cuh"
#if defined(CRYPTO_MB)
#include "curve_crypto_mb.cuh"
#endif
template <class C>
DEVICE void verify_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
    const u32* const comb = comb_table<C>(batch.state);
#if defined(CRYPTO_MB)
    if constexpr (crypto_mb::Library<C>::HAS)
        return crypto_mb::verify_range<C, ALL_PLANES>(batch, lane, begin, end, comb);
#endif
    verify_in_lanes<C, ALL_PLANES>(batch, lane, begin, end, comb);
}
template <class C>
DEVICE void recover_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
    multiply_in_lanes<C, ALL_PLANES>(batch, lane, begin, end, comb_table<C>(batch.state));
}
template <class C>
DEVICE void prepare_verify_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
    prepare_in_lanes<C, ALL_PLANES>(
        batch, begin, end, KEY_NOT_ON_CURVE, [&](u32 item) { prepare_verify<C>(batch, lane, item); },
        [&](u32 item) { return prepare_verify<C, true>(batch, lane, item); });
}
template <class C>
DEVICE void prepare_recover_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
    prepare_in_lanes<C, ALL_PLANES>(
        batch, begin, end, INVALID, [&](u32 item) { prepare_recover<C>(batch, lane, item); },
        [&](u32 item) { return prepare_recover<C, true>(batch, lane, item); });
}
#define PREPARE_STAGE(prefix, C) RANGE_STAGE(prefix##_prepare, prepare_verify_range<C>)
#define RECOVER_PREPARE_STAGE(prefix, C) RANGE_STAGE(prefix##_recover_prepare, prepare_recover_range<C>)
#define VERIFY_STAGE(prefix, C) RANGE_STAGE(prefix##_verify, verify_range<C>)
#define RECOVER_STAGE(prefix, C) RANGE_STAGE(prefix##_recover_point, recover_range<C>)
#endif

#define CURVE_STAGES(prefix, C)                                              \
    STATE_STAGE(prefix##_table_bases, table_base<C>, Comb<C>::BASES, 32)      \
    STATE_STAGE(prefix##_table_entries, table_entry<C>, Comb<C>::ENTRIES, 128) \
    PREPARE_STAGE(prefix, C)                                                 \
    GROUP_STAGE(prefix##_scalars, verify_scalars<C>, GROUP, 128, 1)          \
    VERIFY_STAGE(prefix, C)                                                  \
    ITEM_STAGE(prefix##_finish, verify_finish<C>, FINISH_THREADS, 1)         \
    RECOVER_PREPARE_STAGE(prefix, C)                                         \
    GROUP_STAGE(prefix##_recover_scalars, recover_scalars<C>, GROUP, 128, 1) \
    RECOVER_STAGE(prefix, C)                                                 \
    ITEM_STAGE(prefix##_recover_finish, recover_finish<C>, FINISH_THREADS, 1) \
    GROUP_STAGE(prefix##_keys, recovered_keys<C>, GROUP, 128, 1)

CURVE_STAGES(p256, P256Curve)
CURVE_STAGES(secp256k1, Secp256k1Curve)

#if KEY_SLOTS > 0

template <class C>
DEVICE void finish_enrolled(const Batch& batch, const Lane& lane, u32 item) {
    finish_enrolled_item<C, ALL_PLANES>(batch, lane, item, comb_table<C>(batch.state), key_slots<C>(batch.state));
}

#if TARGET_GPU
template <class C>
DEVICE void verify_enrolled(const Batch& batch, const Lane& lane, u32 item) {
    verify_enrolled_item<C, ALL_PLANES>(batch, lane, item, comb_table<C>(batch.state), key_slots<C>(batch.state));
}
#define VERIFY_ENROLLED_STAGE(prefix, C) \
    ITEM_STAGE(prefix##_verify_enrolled, verify_enrolled<C>, ENROLLED_THREADS, ENROLLED_BLOCKS)
#else
template <class C>
DEVICE void verify_enrolled_range(const Batch& batch, const Lane& lane, u32 begin, u32 end) {
    const u32 *const comb = comb_table<C>(batch.state), *const slots = key_slots<C>(batch.state);
    verify_enrolled_in_lanes<C, ALL_PLANES>(batch, lane, begin, end, comb, slots);
}
#define VERIFY_ENROLLED_STAGE(prefix, C) RANGE_STAGE(prefix##_verify_enrolled, verify_enrolled_range<C>)
#endif

#define ENROLLED_STAGES(prefix, C)                                            \
    STATE_STAGE(prefix##_empty_slots, empty_slot<C>, KeySlots<C>::SLOTS, 128) \
    ITEM_STAGE(prefix##_tabulate, tabulate<C>, TABULATE_THREADS, 1)           \
    ITEM_STAGE(prefix##_enroll, enroll<C>, 128, 1)                            \
    ITEM_STAGE(prefix##_prepare_enrolled, prepare_enrolled<C>, 128, 1)        \
    VERIFY_ENROLLED_STAGE(prefix, C)                                          \
    ITEM_STAGE(prefix##_finish_enrolled, finish_enrolled<C>, ENROLLED_THREADS, ENROLLED_BLOCKS)

ENROLLED_STAGES(p256, P256Curve)
ENROLLED_STAGES(secp256k1, Secp256k1Curve)

#if TARGET_GPU && defined(COMB_TEAM_ITEMS) && COMB_TEAM_ITEMS > 0
#include "curve_enrolled_team.cuh"
template <class C>
DEVICE void verify_enrolled_by_team(const Batch& batch, const Lane& lane, u32 item) {
    const u32 *const comb = comb_table<C>(batch.state), *const slots = key_slots<C>(batch.state);
    verify_enrolled_item_by_team<C, ALL_PLANES>(batch, lane, item, comb, slots);
}
FEW_STAGE(p256_verify_enrolled, verify_enrolled_by_team<P256Curve>, COMB_TEAM_ITEMS, TEAM_LANES, TEAM_BLOCK, 1)
FEW_STAGE(secp256k1_verify_enrolled, verify_enrolled_by_team<Secp256k1Curve>, COMB_TEAM_ITEMS, TEAM_LANES, TEAM_BLOCK, 1)
#endif

#endif
