// Prelude, first part: vector types, masks, arithmetic whose meaning differs from C++'s, reductions across lanes.
namespace kernelopt {

const char* prelude_base_text() {
  return R"KO(#include <immintrin.h>
#include <omp.h>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>
#if KO_LANES == 16 && defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define KO_AVX512 1
#elif KO_LANES == 8 && defined(__AVX2__) && defined(__FMA__)
#define KO_AVX2 1
#endif
#define KO_INLINE static inline __attribute__((always_inline, unused))
#define KO_INLINE_MEMBER inline __attribute__((always_inline))
namespace ko {
constexpr int W = KO_LANES;
template <typename T> struct VecOf { typedef T type __attribute__((vector_size(sizeof(T) * KO_LANES))); };
template <typename T> using vec = typename VecOf<T>::type;
typedef vec<float> vf;
typedef vec<double> vd;
typedef vec<int32_t> vi;
typedef vec<int64_t> vl;
template <int Bytes> struct IntOf;
template <> struct IntOf<1> { typedef int8_t type; };
template <> struct IntOf<2> { typedef int16_t type; };
template <> struct IntOf<4> { typedef int32_t type; };
template <> struct IntOf<8> { typedef int64_t type; };
template <typename V> using elem = std::remove_cv_t<std::remove_reference_t<decltype(std::declval<V&>()[0])>>;
template <typename T> constexpr bool is_scalar = std::is_arithmetic_v<T>;

template <typename T> KO_INLINE vec<T> splat(T x) { return x - vec<T>{}; }
KO_INLINE vi splat_mask(bool x) { return vi{} - int32_t(x); }
KO_INLINE vi iota() {
#if KO_LANES == 16
  return vi{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#elif KO_LANES == 8
  return vi{0, 1, 2, 3, 4, 5, 6, 7};
#else
  return vi{0, 1, 2, 3};
#endif
}
template <typename To, typename V> KO_INLINE vec<To> cvt(V v) {
  if constexpr (std::is_same_v<elem<V>, To>) return v;
  else return __builtin_convertvector(v, vec<To>);
}
// A comparison's result (lanes as wide as its operands) as a mask of 32-bit lanes, and back.
template <typename V> KO_INLINE vi to_mask(V c) {
  if constexpr (sizeof(elem<V>) == 4) return (vi)c;
  else return __builtin_convertvector(c, vi);
}
template <int Bytes> KO_INLINE auto mask_for(vi m) {
  typedef typename IntOf<Bytes>::type I;
  if constexpr (Bytes == 4) return m;
  else return __builtin_convertvector(m, vec<I>);
}
template <typename V> KO_INLINE V select(vi m, V a, V b) { return mask_for<sizeof(elem<V>)>(m) ? a : b; }
KO_INLINE vi tail_mask(int n) { return iota() < n; }
#ifdef KO_AVX512
KO_INLINE __mmask16 bits(vi m) { return _mm512_movepi32_mask((__m512i)m); }
KO_INLINE bool any(vi m) { return bits(m) != 0; }
KO_INLINE bool all(vi m) { return bits(m) == 0xffff; }
#elif defined(KO_AVX2)
KO_INLINE bool any(vi m) { return _mm256_movemask_ps((__m256)m) != 0; }
KO_INLINE bool all(vi m) { return _mm256_movemask_ps((__m256)m) == 0xff; }
#else
KO_INLINE bool any(vi m) { int32_t r = 0; for (int l = 0; l < W; ++l) r |= m[l]; return r != 0; }
KO_INLINE bool all(vi m) { int32_t r = -1; for (int l = 0; l < W; ++l) r &= m[l]; return r != 0; }
#endif

KO_INLINE vf fma(vf a, vf b, vf c) {
#ifdef KO_AVX512
  return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(KO_AVX2)
  return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
  vf r; for (int l = 0; l < W; ++l) r[l] = std::fma(a[l], b[l], c[l]); return r;
#endif
}
KO_INLINE vd fma(vd a, vd b, vd c) { vd r; for (int l = 0; l < W; ++l) r[l] = std::fma(a[l], b[l], c[l]); return r; }
KO_INLINE float fma(float a, float b, float c) { return std::fma(a, b, c); }
KO_INLINE double fma(double a, double b, double c) { return std::fma(a, b, c); }

// Maximum and minimum that hand on a NaN of either side.
template <typename V> KO_INLINE V vmax(V a, V b) {
  if constexpr (is_scalar<V>) {
    if constexpr (std::is_floating_point_v<V>) return (a > b || a != a) ? a : b;
    else return a > b ? a : b;
  } else {
    typedef elem<V> T;
    if constexpr (!std::is_floating_point_v<T>) return a > b ? a : b;
#ifdef KO_AVX512
    else if constexpr (std::is_same_v<T, float>)
      return (V)_mm512_mask_max_ps((__m512)a, _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q), (__m512)a, (__m512)b);
#elif defined(KO_AVX2)
    else if constexpr (std::is_same_v<T, float>)
      return (V)_mm256_blendv_ps(_mm256_max_ps((__m256)a, (__m256)b), (__m256)a, _mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q));
#endif
    else return ((a > b) | (a != a)) ? a : b;
  }
}
template <typename V> KO_INLINE V vmin(V a, V b) {
  if constexpr (is_scalar<V>) {
    if constexpr (std::is_floating_point_v<V>) return (a < b || a != a) ? a : b;
    else return a < b ? a : b;
  } else {
    typedef elem<V> T;
    if constexpr (!std::is_floating_point_v<T>) return a < b ? a : b;
#ifdef KO_AVX512
    else if constexpr (std::is_same_v<T, float>)
      return (V)_mm512_mask_min_ps((__m512)a, _mm512_cmp_ps_mask((__m512)a, (__m512)a, _CMP_ORD_Q), (__m512)a, (__m512)b);
#elif defined(KO_AVX2)
    else if constexpr (std::is_same_v<T, float>)
      return (V)_mm256_blendv_ps(_mm256_min_ps((__m256)a, (__m256)b), (__m256)a, _mm256_cmp_ps((__m256)a, (__m256)a, _CMP_UNORD_Q));
#endif
    else return ((a < b) | (a != a)) ? a : b;
  }
}
// The same where `c` is known to be no NaN: a NaN of `a` survives in one instruction.
template <typename V> KO_INLINE V vmax_number(V a, V c) {
#ifdef KO_AVX512
  if constexpr (std::is_same_v<V, vf>) return (V)_mm512_max_ps((__m512)c, (__m512)a);
  else
#elif defined(KO_AVX2)
  if constexpr (std::is_same_v<V, vf>) return (V)_mm256_max_ps((__m256)c, (__m256)a);
  else
#endif
  return vmax(a, c);
}
template <typename V> KO_INLINE V vmin_number(V a, V c) {
#ifdef KO_AVX512
  if constexpr (std::is_same_v<V, vf>) return (V)_mm512_min_ps((__m512)c, (__m512)a);
  else
#elif defined(KO_AVX2)
  if constexpr (std::is_same_v<V, vf>) return (V)_mm256_min_ps((__m256)c, (__m256)a);
  else
#endif
  return vmin(a, c);
}

// Lanes one by one, for what vectors do not have.
template <typename R, typename F, typename V, typename... Vs> KO_INLINE vec<R> lanes(F f, V a, Vs... rest) {
  vec<R> r = {};
  for (int l = 0; l < W; ++l) r[l] = f(a[l], rest[l]...);
  return r;
}
#define KO_LANEWISE1(name, call)                                                                  \
  KO_INLINE float name(float x) { return call(x); }                                               \
  KO_INLINE double name(double x) { return call(x); }                                             \
  KO_INLINE vf name(vf x) { return lanes<float>([](float y) { return call(y); }, x); }            \
  KO_INLINE vd name(vd x) { return lanes<double>([](double y) { return call(y); }, x); }
#ifdef KO_AVX512
#define KO_ROUNDING(name, call, mode)                                                             \
  KO_INLINE float name(float x) { return call(x); }                                               \
  KO_INLINE double name(double x) { return call(x); }                                             \
  KO_INLINE vf name(vf x) { return (vf)_mm512_roundscale_ps((__m512)x, (mode) | _MM_FROUND_NO_EXC); } \
  KO_INLINE vd name(vd x) { return lanes<double>([](double y) { return call(y); }, x); }
#elif defined(KO_AVX2)
#define KO_ROUNDING(name, call, mode)                                                             \
  KO_INLINE float name(float x) { return call(x); }                                               \
  KO_INLINE double name(double x) { return call(x); }                                             \
  KO_INLINE vf name(vf x) { return (vf)_mm256_round_ps((__m256)x, (mode) | _MM_FROUND_NO_EXC); }  \
  KO_INLINE vd name(vd x) { return lanes<double>([](double y) { return call(y); }, x); }
#else
#define KO_ROUNDING(name, call, mode) KO_LANEWISE1(name, call)
#endif
KO_ROUNDING(vfloor, std::floor, _MM_FROUND_TO_NEG_INF)
KO_ROUNDING(vceil, std::ceil, _MM_FROUND_TO_POS_INF)
KO_ROUNDING(vtrunc, std::trunc, _MM_FROUND_TO_ZERO)
KO_ROUNDING(vround, std::nearbyint, _MM_FROUND_TO_NEAREST_INT)
KO_INLINE float vsqrt(float x) { return std::sqrt(x); }
KO_INLINE double vsqrt(double x) { return std::sqrt(x); }
KO_INLINE vf vsqrt(vf x) {
#ifdef KO_AVX512
  return (vf)_mm512_sqrt_ps((__m512)x);
#elif defined(KO_AVX2)
  return (vf)_mm256_sqrt_ps((__m256)x);
#else
  return lanes<float>([](float y) { return std::sqrt(y); }, x);
#endif
}
KO_INLINE vd vsqrt(vd x) { return lanes<double>([](double y) { return std::sqrt(y); }, x); }
template <typename V> KO_INLINE V vabs(V x) {
  if constexpr (std::is_same_v<V, vf>) return (vf)((vi)x & 0x7fffffff);
  else if constexpr (std::is_same_v<V, vd>) return (vd)((vl)x & 0x7fffffffffffffffLL);
  else if constexpr (std::is_floating_point_v<V>) return std::fabs(x);
  else return x < 0 ? -x : x;
}
template <typename V> KO_INLINE V vsign(V x) {
  if constexpr (is_scalar<V>) return x != x ? x : V(x > 0) - V(x < 0);
  else {
    const V one = V{} + 1, zero = V{};
    const V r = (x > 0 ? one : zero) - (x < 0 ? one : zero);
    return x != x ? x : r;
  }
}
template <typename V> KO_INLINE V vcopysign(V x, V s) {
  if constexpr (std::is_same_v<V, vf>) return (vf)(((vi)x & 0x7fffffff) | ((vi)s & int32_t(0x80000000)));
  else if constexpr (is_scalar<V>) return std::copysign(x, s);
  else return (V)(((vl)x & 0x7fffffffffffffffLL) | ((vl)s & int64_t(0x8000000000000000ULL)));
}
// Integer division: by zero gives zero in lanes whose result nobody uses, where C++ would trap.
template <typename T> KO_INLINE T div_trunc1(T a, T b) { return b == 0 ? T(0) : b == T(-1) ? T(0 - a) : T(a / b); }
template <typename T> KO_INLINE T mod_trunc1(T a, T b) { return b == 0 || b == T(-1) ? T(0) : T(a % b); }
template <typename T> KO_INLINE T div_floor1(T a, T b) {
  const T q = div_trunc1(a, b);
  return mod_trunc1(a, b) != 0 && ((a < 0) != (b < 0)) ? T(q - 1) : q;
}
template <typename T> KO_INLINE T mod_floor1(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    const T r = std::fmod(a, b);
    return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
  } else {
    const T r = mod_trunc1(a, b);
    return r != 0 && ((r < 0) != (b < 0)) ? T(r + b) : r;
  }
}
template <typename T> KO_INLINE T fmod1(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) return std::fmod(a, b);
  else return mod_trunc1(a, b);
}
#define KO_LANEWISE2(name, one)                                                     \
  template <typename V> KO_INLINE V name(V a, V b) {                                \
    if constexpr (is_scalar<V>) return one(a, b);                                   \
    else return lanes<elem<V>>([](elem<V> x, elem<V> y) { return one(x, y); }, a, b); \
  }
KO_LANEWISE2(div_trunc, div_trunc1)
KO_LANEWISE2(div_floor, div_floor1)
KO_LANEWISE2(mod_floor, mod_floor1)
KO_LANEWISE2(mod_trunc, fmod1)
// Index arithmetic of scalars with floor semantics.
KO_INLINE int64_t fdiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }
KO_INLINE int64_t fmod_index(int64_t a, int64_t b) { const int64_t r = a % b; return r < 0 ? r + b : r; }
KO_INLINE int64_t imin(int64_t a, int64_t b) { return a < b ? a : b; }
KO_INLINE int64_t imax(int64_t a, int64_t b) { return a > b ? a : b; }

// Floating point to integer as C++ converts scalars; out of range is the target's smallest value, as x86 does.
template <typename To, typename V> KO_INLINE auto to_int(V x) {
  if constexpr (is_scalar<V>) return To(x);
  else return __builtin_convertvector(x, vec<To>);
}

template <int K, typename V> KO_INLINE V swap_lanes(V v) {
  typedef vec<typename IntOf<sizeof(elem<V>)>::type> I;
#if KO_LANES == 16
  return __builtin_shuffle(v, I{0 ^ K, 1 ^ K, 2 ^ K, 3 ^ K, 4 ^ K, 5 ^ K, 6 ^ K, 7 ^ K, 8 ^ K, 9 ^ K, 10 ^ K, 11 ^ K, 12 ^ K, 13 ^ K, 14 ^ K, 15 ^ K});
#elif KO_LANES == 8
  return __builtin_shuffle(v, I{0 ^ K, 1 ^ K, 2 ^ K, 3 ^ K, 4 ^ K, 5 ^ K, 6 ^ K, 7 ^ K});
#else
  return __builtin_shuffle(v, I{0 ^ K, 1 ^ K, 2 ^ K, 3 ^ K});
#endif
}
// Lanes moved up by K; the lowest K lanes are unspecified.
template <int K, typename V> KO_INLINE V shift_lanes(V v) {
  typedef vec<typename IntOf<sizeof(elem<V>)>::type> I;
  constexpr int M = KO_LANES - 1;
#if KO_LANES == 16
  return __builtin_shuffle(v, I{(0 - K) & M, (1 - K) & M, (2 - K) & M, (3 - K) & M, (4 - K) & M, (5 - K) & M, (6 - K) & M, (7 - K) & M,
                                (8 - K) & M, (9 - K) & M, (10 - K) & M, (11 - K) & M, (12 - K) & M, (13 - K) & M, (14 - K) & M, (15 - K) & M});
#elif KO_LANES == 8
  return __builtin_shuffle(v, I{(0 - K) & M, (1 - K) & M, (2 - K) & M, (3 - K) & M, (4 - K) & M, (5 - K) & M, (6 - K) & M, (7 - K) & M});
#else
  return __builtin_shuffle(v, I{(0 - K) & M, (1 - K) & M, (2 - K) & M, (3 - K) & M});
#endif
}
// Each lane joined with all lanes below it; f(x, neutral) == x. Log2(W) steps, since the chain of a plain scan waits for every
// addition. Lanes of eight bytes take several registers, which general shuffles know only through memory.
template <typename V, typename F> KO_INLINE V scan_lanes(V v, elem<V> neutral, F f) {
  typedef elem<V> T;
#if defined(KO_AVX512) || defined(KO_AVX2)
  if constexpr (sizeof(T) == 8) {
#ifdef KO_AVX512
    typedef T part __attribute__((vector_size(64)));
    constexpr int L = 8;
    const auto up1 = [](part x, part n) { return (part)_mm512_alignr_epi64((__m512i)x, (__m512i)n, 7); };
    const auto up2 = [](part x, part n) { return (part)_mm512_alignr_epi64((__m512i)x, (__m512i)n, 6); };
    const auto up4 = [](part x, part n) { return (part)_mm512_alignr_epi64((__m512i)x, (__m512i)n, 4); };
    const auto last = [](part x) { return (part)_mm512_permutexvar_epi64(_mm512_set1_epi64(7), (__m512i)x); };
#else
    typedef T part __attribute__((vector_size(32)));
    constexpr int L = 4;
    const auto up1 = [](part x, part n) {
      return (part)_mm256_blend_pd(_mm256_permute4x64_pd((__m256d)x, 0x90), (__m256d)n, 1);
    };
    const auto up2 = [](part x, part n) { return (part)_mm256_permute2f128_pd((__m256d)x, (__m256d)n, 0x02); };
    const auto last = [](part x) { return (part)_mm256_permute4x64_pd((__m256d)x, 0xff); };
#endif
    union { V whole; part parts[W / L]; } u;
    u.whole = v;
    const part none = neutral - part{};
    for (int p = 0; p < W / L; ++p) {
      part x = u.parts[p];
      x = f(up1(x, none), x);
      x = f(up2(x, none), x);
#ifdef KO_AVX512
      x = f(up4(x, none), x);
#endif
      u.parts[p] = x;
    }
    for (int p = 1; p < W / L; ++p) u.parts[p] = f(last(u.parts[p - 1]), u.parts[p]);
    return u.whole;
  }
#endif
  const V none = neutral - V{};
  v = f(select(iota() >= 1, shift_lanes<1>(v), none), v);
  v = f(select(iota() >= 2, shift_lanes<2>(v), none), v);
#if KO_LANES >= 8
  v = f(select(iota() >= 4, shift_lanes<4>(v), none), v);
#endif
#if KO_LANES == 16
  v = f(select(iota() >= 8, shift_lanes<8>(v), none), v);
#endif
  return v;
}
// One vector of a long scan; `carry` is what came before it and then what comes before the next. The carry meets the vector's own
// total, not its last result (the same value), so that vectors wait for one another for one operation only.
template <typename V, typename F> KO_INLINE V scan_step(V v, elem<V>& carry, elem<V> neutral, F f) {
  const V own = scan_lanes(v, neutral, f), before = carry - V{};
  const V result = f(before, own);
  carry = f(carry, elem<V>(own[W - 1]));
  return result;
}
struct ScanSum { template <typename T> KO_INLINE_MEMBER T operator()(T a, T b) const { return a + b; } };
struct ScanProduct { template <typename T> KO_INLINE_MEMBER T operator()(T a, T b) const { return a * b; } };
template <typename V, typename F> KO_INLINE V fold_all(V v, F f) {
#if KO_LANES == 16
  v = f(v, swap_lanes<8>(v));
#endif
#if KO_LANES >= 8
  v = f(v, swap_lanes<4>(v));
#endif
  v = f(v, swap_lanes<2>(v));
  return f(v, swap_lanes<1>(v));
}
template <typename V> KO_INLINE elem<V> hsum(V v) { return fold_all(v, [](V a, V b) { return a + b; })[0]; }
template <typename V> KO_INLINE elem<V> hprod(V v) { return fold_all(v, [](V a, V b) { return a * b; })[0]; }
template <typename V> KO_INLINE elem<V> hmax(V v) { return fold_all(v, [](V a, V b) { return vmax(a, b); })[0]; }
template <typename V> KO_INLINE elem<V> hmin(V v) { return fold_all(v, [](V a, V b) { return vmin(a, b); })[0]; }
template <typename V> KO_INLINE elem<V> hxor(V v) { return fold_all(v, [](V a, V b) { return a ^ b; })[0]; }

// argmax and argmin: the first index of the largest value; a NaN is larger than everything. `Less` for argmin.
template <bool Less, typename V, typename I> KO_INLINE void arg_step(V& best, I& at, V x, I index, vi valid) {
  const vi keep = to_mask(Less ? (x >= best) : (x <= best)) | to_mask(best != best);
  const vi take = ~keep & valid;
  best = select(take, x, best);
  at = select(take, index, at);
}
template <bool Less, typename T, typename I> KO_INLINE void arg_step1(T& best, I& at, T x, I index) {
  const bool keep = (Less ? x >= best : x <= best) || best != best;
  if (!keep) { best = x; at = index; }
}
// Joins candidates of which neither is known to come first.
template <bool Less, typename T, typename I> KO_INLINE void arg_join1(T& best, I& at, T x, I index) {
  const bool best_nan = best != best, x_nan = x != x;
  const bool better = x_nan ? (!best_nan || index < at) : !best_nan && ((Less ? x < best : x > best) || (x == best && index < at));
  if (better) { best = x; at = index; }
}

// Chan's combination of (mean, m2, weight).
template <typename V> KO_INLINE void welford_join(V& mean, V& m2, V& weight, V mean_b, V m2_b, V weight_b) {
  const V total = weight + weight_b;
  const V delta = mean_b - mean;
  V share;
  if constexpr (is_scalar<V>) share = total == 0 ? V(0) : weight_b / total;
  else share = total == 0 ? V{} : weight_b / total;
  mean = mean + delta * share;
  m2 = m2 + m2_b + delta * delta * weight * share;
  weight = total;
}
template <typename V> KO_INLINE void welford_across(V& mean, V& m2, V& weight) {
#if KO_LANES == 16
  welford_join<V>(mean, m2, weight, swap_lanes<8>(mean), swap_lanes<8>(m2), swap_lanes<8>(weight));
#endif
#if KO_LANES >= 8
  welford_join<V>(mean, m2, weight, swap_lanes<4>(mean), swap_lanes<4>(m2), swap_lanes<4>(weight));
#endif
  welford_join<V>(mean, m2, weight, swap_lanes<2>(mean), swap_lanes<2>(m2), swap_lanes<2>(weight));
  welford_join<V>(mean, m2, weight, swap_lanes<1>(mean), swap_lanes<1>(m2), swap_lanes<1>(weight));
}
)KO";
}

}  // namespace kernelopt
