// Point arithmetic: fast and incomplete in lazy fields, complete in exact ones.
#pragma once
#include "curve.cuh"
#include "lanes.cuh"

// Formulas are inlined into the kernels of a GPU. A CPU gains nothing from that, and its compiler takes minutes.
#if TARGET_GPU
#define FORMULA DEVICE
#else
#define FORMULA DEVICE_CALL WITH_IFMA
#endif

// A point on its way through a verification, in Jacobian coordinates with the doubled ordinate: the affine point is
// (x / z^2, y / (2 z^3)). Where a = -3 `w` is a z^4, carried along instead of being computed for each doubling.
//
// The formulas are incomplete. Where the two points of an addition are equal or opposite, the new z is zero, and it
// stays zero from there on: z = 0 at the end tells that an addition went wrong, or that the result is infinity. There
// are no points of order two, so that doublings are always right.
template <class C>
struct FastPoint {
    typedef typename C::Field F;
    typedef typename F::Element Element;
    Element x, y, z, w;

    // 2M + 5S, and M for w where `carry_w`. With y = 2Y: S = 4XY^2 = x y^2, M = 3x^2 + w,
    // x' = M^2 - 2S, y' = M (2S - 2x') - y^4, z' = y z, w' = w y^4; 2S = (x + y^2)^2 - x^2 - y^4.
    // The order of the statements is one that came out fast.
    FORMULA void twice(FastPoint& p, bool carry_w, Flags& flags) {
        const Element x2 = F::sqr(p.x, flags);
        const Element y2 = F::sqr(p.y, flags);
        p.z = F::mul(p.y, p.z, flags);
        Element m;
        if constexpr (C::A_IS_MINUS_3) m = F::triple_add(x2, p.w, flags);
        else m = F::triple(x2, flags);
        const Element m2 = F::sqr(m, flags);
        const Element y4 = F::sqr(y2, flags);
        const Element xy = F::add(p.x, y2, flags);
        const Element xy2 = F::sqr(xy, flags);
        const Element s2 = F::sub_sub(xy2, x2, y4, flags);
        if constexpr (C::A_IS_MINUS_3) {
            if (carry_w) p.w = F::mul(p.w, y4, flags);
        }
        p.x = F::sub(m2, s2, flags);
        const Element d = F::sub_twice(s2, p.x, flags);
        const Element t = F::mul(m, d, flags);
        p.y = F::sub(t, y4, flags);
    }

    // p += the affine point (x, y / 2): 8M + 3S. With H = x z^2 - X and r = (y z^3 - Y) / 2:
    // X' = r^2 - H^3 - 2 X H^2, Y' = 2r (X H^2 - X') - Y H^3, Z' = Z H.
    FORMULA void add_doubled(FastPoint& p, const Element& x, const Element& y, Flags& flags) {
        const Element zz = F::sqr(p.z, flags);
        const Element u = F::mul(zz, x, flags);
        const Element zzz = F::mul(zz, p.z, flags);
        const Element s = F::mul(y, zzz, flags);
        const Element h = F::sub(u, p.x, flags);
        const Element r2 = F::sub(s, p.y, flags);
        const Element r = F::half(r2);
        const Element rr = F::sqr(r, flags);
        const Element hh = F::sqr(h, flags);
        p.z = F::mul(p.z, h, flags);
        const Element v = F::mul(p.x, hh, flags);
        const Element hhh = F::mul(h, hh, flags);
        p.x = F::sub_sub_twice(rr, hhh, v, flags);
        const Element d = F::sub(v, p.x, flags);
        const Element q = F::mul(hhh, p.y, flags);
        const Element t = F::mul(r2, d, flags);
        p.y = F::sub(t, q, flags);
    }

    // The same for points with their plain ordinates, p's too.
    FORMULA void add_plain(FastPoint& p, const Element& x, const Element& y, Flags& flags) {
        const Element zz = F::sqr(p.z, flags);
        const Element h = F::sub(F::mul(x, zz, flags), p.x, flags);
        const Element r = F::sub(F::mul(y, F::mul(p.z, zz, flags), flags), p.y, flags);
        p.z = F::mul(p.z, h, flags);
        const Element hh = F::sqr(h, flags);
        const Element hhh = F::mul(h, hh, flags), v = F::mul(p.x, hh, flags);
        const Element q = F::mul(p.y, hhh, flags);
        p.x = F::sub_sub_twice(F::sqr(r, flags), hhh, v, flags);
        p.y = F::sub(F::mul(r, F::sub(v, p.x, flags), flags), q, flags);
    }

    // The same where p is affine, z being 1: 4M + 2S.
    FORMULA void add_affine(FastPoint& p, const Element& x, const Element& y, Flags& flags) {
        const Element h = F::sub(x, p.x, flags), r = F::sub(y, p.y, flags);
        const Element hh = F::sqr(h, flags);
        const Element hhh = F::mul(h, hh, flags), v = F::mul(p.x, hh, flags);
        const Element q = F::mul(p.y, hhh, flags);
        p.z = h;
        p.x = F::sub_sub_twice(F::sqr(r, flags), hhh, v, flags);
        p.y = F::sub(F::mul(r, F::sub(v, p.x, flags), flags), q, flags);
    }

    // For those who need every case: takes over the addition of (x, y) where the formulas above fail, on the curve
    // whose a is `a` (unused where it is 0), and tells whether it did. With PLAIN ordinates as for add_plain.
    template <bool PLAIN>
    FORMULA bool add_exception(FastPoint& p, const Element& x, const Element& y, const Element& a, Flags& flags) {
        if (F::is_zero(p.z)) {
            p.x = x, p.y = y, p.z = F::one();
            return true;
        }
        const Element zz = F::sqr(p.z, flags);
        if (!F::is_zero(F::sub(F::mul(zz, x, flags), p.x, flags))) return false;
        if (!F::is_zero(F::sub(F::mul(y, F::mul(zz, p.z, flags), flags), p.y, flags))) {
            p.z = F::zero();
            return true;
        }
        if (PLAIN) p.y = F::twice(p.y, flags);
        if constexpr (C::A_IS_MINUS_3) p.w = F::mul(F::sqr(zz, flags), a, flags);
        twice(p, false, flags);
        if (PLAIN) p.y = F::half(p.y);
        return true;
    }
};

// A point in Jacobian coordinates, (x / z^2, y / z^3), infinity where z = 0. Elements are canonical and formulas
// complete.
template <class C>
struct ExactPoint {
    typedef typename C::Field F;
    typedef Exact<F> E;
    typedef typename F::Element Element;
    Element x, y, z;

    DEVICE ExactPoint infinity() { return {F::one(), F::one(), F::zero()}; }
    DEVICE ExactPoint affine(const Element& x, const Element& y) { return {x, y, F::one()}; }
    DEVICE ExactPoint generator() { return affine(E::from_words(C::gx()), E::from_words(C::gy())); }
    DEVICE bool is_infinity(const ExactPoint& p) { return F::is_zero(p.z); }

    // 2 infinity = infinity, and a point with y = 0 gives infinity.
    FORMULA ExactPoint twice(const ExactPoint& p) {
        const Element y2 = E::sqr(p.y), s = E::mul(p.x, y2);
        Element m;
        if constexpr (C::A_IS_MINUS_3) {
            const Element z2 = E::sqr(p.z);  // 3 x^2 - 3 z^4 = 3 (x - z^2) (x + z^2)
            m = E::triple(E::mul(E::sub(p.x, z2), E::add(p.x, z2)));
        } else {
            m = E::triple(E::sqr(p.x));
        }
        ExactPoint r;
        const Element s4 = E::twice(E::twice(s));
        r.x = E::sub(E::sqr(m), E::twice(s4));
        r.z = E::twice(E::mul(p.y, p.z));
        const Element y4 = E::sqr(y2);
        r.y = E::sub(E::mul(m, E::sub(s4, r.x)), E::twice(E::twice(E::twice(y4))));
        return r;
    }

    DEVICE_CALL ExactPoint add(const ExactPoint p, const ExactPoint q) {
        if (is_infinity(p)) return q;
        if (is_infinity(q)) return p;
        const Element pz2 = E::sqr(p.z), qz2 = E::sqr(q.z);
        const Element u = E::mul(p.x, qz2), s = E::mul(p.y, E::mul(qz2, q.z));
        const Element h = E::sub(E::mul(q.x, pz2), u), r = E::sub(E::mul(q.y, E::mul(pz2, p.z)), s);
        if (F::is_zero(h)) return F::is_zero(r) ? twice(p) : infinity();
        const Element hh = E::sqr(h), hhh = E::mul(h, hh), v = E::mul(u, hh);
        ExactPoint sum;
        sum.x = E::sub(E::sub(E::sqr(r), hhh), E::twice(v));
        sum.y = E::sub(E::mul(r, E::sub(v, sum.x)), E::mul(s, hhh));
        sum.z = E::mul(E::mul(p.z, q.z), h);
        return sum;
    }

    // The affine coordinates of a point that is not infinity.
    DEVICE void to_affine(Element& x, Element& y, const ExactPoint& p) {
        const Element inverse = E::invert(p.z), square = E::sqr(inverse);
        x = E::mul(p.x, square);
        y = E::mul(p.y, E::mul(square, inverse));
    }
};

// x^3 + a x + b.
template <class C>
DEVICE typename C::Field::Element curve_equation(const typename C::Field::Element& x) {
    typedef Exact<typename C::Field> E;
    const auto b = E::from_words(C::b());
    const auto cube = E::mul(E::sqr(x), x);
    if constexpr (C::A_IS_MINUS_3) return E::add(E::sub(cube, E::triple(x)), b);
    else return E::add(cube, b);
}

// Whether (x, y), both below p, is on the curve.
template <class C>
DEVICE bool on_curve(const Words& x, const Words& y) {
    typedef Exact<typename C::Field> E;
    return E::equal(E::sqr(E::from_words(y)), curve_equation<C>(E::from_words(x)));
}

// The y of the parity `odd` above x < p, or false where x is no point's. The order is an odd prime, so that no y is
// zero and both parities exist.
template <class C>
DEVICE bool decompress(Words& y, const Words& x, u32 odd) {
    typedef Exact<typename C::Field> E;
    typename C::Field::Element root;
    if (!E::sqrt(root, curve_equation<C>(E::from_words(x)))) return false;
    y = E::to_words(root);
    if ((y.w[0] & 1) != odd) subtract(y, C::Field::Prime::p(), y);
    return true;
}
