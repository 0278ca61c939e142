// Counts operations of the fields and orders, in a build for the CPU with COUNT_OPERATIONS defined; otherwise nothing.
// `verifier bench counts` reads the counts of a device of one thread.
#pragma once
#include "words.cuh"

#if defined(COUNT_OPERATIONS) && !TARGET_GPU

#define COUNTER(what) EXPORT u32 counted_##what = 0;
#define COUNT(what) ((void)counted_##what++)

COUNTER(multiplications)
COUNTER(squarings)
COUNTER(additions)  // everything linear: subtractions, doublings, halvings, a - b - 2c as one
COUNTER(inversions)  // what they are made of is counted too
COUNTER(order_multiplications)
COUNTER(order_inversions)

// F, counting what is asked of it; what F asks of itself is not counted.
template <class F>
struct CountingField : F {
    typedef typename F::Element Element;

    DEVICE Element mul(const Element& a, const Element& b) { return COUNT(multiplications), F::mul(a, b); }
    DEVICE Element sqr(const Element& a) { return COUNT(squarings), F::sqr(a); }
    DEVICE Element add(const Element& a, const Element& b) { return COUNT(additions), F::add(a, b); }
    DEVICE Element sub(const Element& a, const Element& b) { return COUNT(additions), F::sub(a, b); }
    DEVICE Element twice(const Element& a) { return COUNT(additions), F::twice(a); }
    DEVICE Element half(const Element& a) { return COUNT(additions), F::half(a); }
    DEVICE Element negate_if(const Element& a, u32 mask) { return COUNT(additions), F::negate_if(a, mask); }

    DEVICE Element mul(const Element& a, const Element& b, Flags&) { return mul(a, b); }
    DEVICE Element sqr(const Element& a, Flags&) { return sqr(a); }
    DEVICE Element add(const Element& a, const Element& b, Flags&) { return add(a, b); }
    DEVICE Element sub(const Element& a, const Element& b, Flags&) { return sub(a, b); }
    DEVICE Element twice(const Element& a, Flags&) { return twice(a); }
    DEVICE Element triple(const Element& a, Flags& f) { return COUNT(additions), F::triple(a, f); }
    DEVICE Element triple_add(const Element& a, const Element& b, Flags& f) {
        return COUNT(additions), F::triple_add(a, b, f);
    }
    DEVICE Element sub_twice(const Element& a, const Element& b, Flags& f) {
        return COUNT(additions), F::sub_twice(a, b, f);
    }
    DEVICE Element sub_sub(const Element& a, const Element& b, const Element& c, Flags& f) {
        return COUNT(additions), F::sub_sub(a, b, c, f);
    }
    DEVICE Element sub_sub_twice(const Element& a, const Element& b, const Element& c, Flags& f) {
        return COUNT(additions), F::sub_sub_twice(a, b, c, f);
    }
    DEVICE Element negate_if(const Element& a, u32 mask, Flags&) { return negate_if(a, mask); }
    DEVICE Element from_words(const Words& a, Flags& f) {
        if (!F::PLAIN) COUNT(multiplications);
        return F::from_words(a, f);
    }
};

#else
#define COUNT(what) ((void)0)
#endif
