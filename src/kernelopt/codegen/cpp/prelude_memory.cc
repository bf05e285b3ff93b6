// Prelude, second part: loads and stores (contiguous, part of a vector, under a mask, strided, gathered) and conversions
// of the half types.
namespace kernelopt {

const char* prelude_memory_text() {
  return R"KO(
template <typename T> KO_INLINE vec<T> load(const T* p) {
  typedef T unaligned __attribute__((vector_size(sizeof(T) * KO_LANES), aligned(sizeof(T)), may_alias));
  return *(const unaligned*)p;
}
template <typename T> KO_INLINE void store(T* p, vec<T> v) {
  typedef T unaligned __attribute__((vector_size(sizeof(T) * KO_LANES), aligned(sizeof(T)), may_alias));
  *(unaligned*)p = v;
}
// The first n lanes; the others are zero.
template <typename T> KO_INLINE vec<T> load_n(const T* p, int n) {
#ifdef KO_AVX512
  const __mmask16 k = __mmask16((1u << n) - 1);
  if constexpr (sizeof(T) == 4) return (vec<T>)_mm512_maskz_loadu_epi32(k, p);
  else if constexpr (sizeof(T) == 2) return (vec<T>)_mm256_maskz_loadu_epi16(k, p);
  else if constexpr (sizeof(T) == 1) return (vec<T>)_mm_maskz_loadu_epi8(k, p);
  else
#elif defined(KO_AVX2)
  if constexpr (sizeof(T) == 4) return (vec<T>)_mm256_maskload_epi32((const int*)p, (__m256i)tail_mask(n));
  else
#endif
  {
    vec<T> v = {};
    for (int l = 0; l < W; ++l) if (l < n) v[l] = p[l];
    return v;
  }
}
template <typename T> KO_INLINE void store_n(T* p, vec<T> v, int n) {
#ifdef KO_AVX512
  const __mmask16 k = __mmask16((1u << n) - 1);
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_epi32(p, k, (__m512i)v);
  else if constexpr (sizeof(T) == 2) _mm256_mask_storeu_epi16(p, k, (__m256i)v);
  else if constexpr (sizeof(T) == 1) _mm_mask_storeu_epi8(p, k, (__m128i)v);
  else
#elif defined(KO_AVX2)
  if constexpr (sizeof(T) == 4) _mm256_maskstore_epi32((int*)p, (__m256i)tail_mask(n), (__m256i)v);
  else
#endif
  for (int l = 0; l < W; ++l) if (l < n) p[l] = v[l];
}
template <typename T> KO_INLINE vec<T> load_m(const T* p, vi m) {
#ifdef KO_AVX512
  const __mmask16 k = bits(m);
  if constexpr (sizeof(T) == 4) return (vec<T>)_mm512_maskz_loadu_epi32(k, p);
  else if constexpr (sizeof(T) == 2) return (vec<T>)_mm256_maskz_loadu_epi16(k, p);
  else if constexpr (sizeof(T) == 1) return (vec<T>)_mm_maskz_loadu_epi8(k, p);
  else
#elif defined(KO_AVX2)
  if constexpr (sizeof(T) == 4) return (vec<T>)_mm256_maskload_epi32((const int*)p, (__m256i)m);
  else
#endif
  {
    vec<T> v = {};
    for (int l = 0; l < W; ++l) if (m[l]) v[l] = p[l];
    return v;
  }
}
template <typename T> KO_INLINE void store_m(T* p, vec<T> v, vi m) {
#ifdef KO_AVX512
  const __mmask16 k = bits(m);
  if constexpr (sizeof(T) == 4) _mm512_mask_storeu_epi32(p, k, (__m512i)v);
  else if constexpr (sizeof(T) == 2) _mm256_mask_storeu_epi16(p, k, (__m256i)v);
  else if constexpr (sizeof(T) == 1) _mm_mask_storeu_epi8(p, k, (__m128i)v);
  else
#elif defined(KO_AVX2)
  if constexpr (sizeof(T) == 4) _mm256_maskstore_epi32((int*)p, (__m256i)m, (__m256i)v);
  else
#endif
  for (int l = 0; l < W; ++l) if (m[l]) p[l] = v[l];
}
// Past the caches where the address allows it.
template <typename T> KO_INLINE void stream(T* p, vec<T> v) {
#ifdef KO_AVX512
  if constexpr (sizeof(T) == 4) {
    if ((reinterpret_cast<uintptr_t>(p) & 63) == 0) { _mm512_stream_si512((__m512i*)p, (__m512i)v); return; }
  }
#elif defined(KO_AVX2)
  if constexpr (sizeof(T) == 4) {
    if ((reinterpret_cast<uintptr_t>(p) & 31) == 0) { _mm256_stream_si256((__m256i*)p, (__m256i)v); return; }
  }
#endif
  store(p, v);
}
// Every second element: p[0], p[2], ...; touches nothing past the last one.
template <typename T> KO_INLINE vec<T> load_2(const T* p) {
  typedef vec<typename IntOf<sizeof(T)>::type> I;
  const vec<T> a = load(p), b = load(p + W - 1);
#if KO_LANES == 16
  return __builtin_shuffle(a, b, I{0, 2, 4, 6, 8, 10, 12, 14, 17, 19, 21, 23, 25, 27, 29, 31});
#elif KO_LANES == 8
  return __builtin_shuffle(a, b, I{0, 2, 4, 6, 9, 11, 13, 15});
#else
  return __builtin_shuffle(a, b, I{0, 2, 5, 7});
#endif
}
template <typename T> KO_INLINE vec<T> load_step(const T* p, int64_t step) {
  vec<T> v = {};
  for (int l = 0; l < W; ++l) v[l] = p[l * step];
  return v;
}
template <typename T> KO_INLINE vec<T> load_step_m(const T* p, int64_t step, vi m) {
  vec<T> v = {};
  for (int l = 0; l < W; ++l) if (m[l]) v[l] = p[l * step];
  return v;
}
template <typename T> KO_INLINE void store_step(T* p, int64_t step, vec<T> v) {
  for (int l = 0; l < W; ++l) p[l * step] = v[l];
}
template <typename T> KO_INLINE void store_step_m(T* p, int64_t step, vec<T> v, vi m) {
  for (int l = 0; l < W; ++l) if (m[l]) p[l * step] = v[l];
}
template <typename T, typename I> KO_INLINE vec<T> gather(const T* p, I index) {
#ifdef KO_AVX512
  if constexpr (sizeof(T) == 4 && std::is_same_v<I, vi>) return (vec<T>)_mm512_i32gather_epi32((__m512i)index, (const int*)p, 4);
  else
#elif defined(KO_AVX2)
  if constexpr (sizeof(T) == 4 && std::is_same_v<I, vi>) return (vec<T>)_mm256_i32gather_epi32((const int*)p, (__m256i)index, 4);
  else
#endif
  {
    vec<T> v = {};
    for (int l = 0; l < W; ++l) v[l] = p[index[l]];
    return v;
  }
}
template <typename T, typename I> KO_INLINE vec<T> gather_m(const T* p, I index, vi m) {
#ifdef KO_AVX512
  if constexpr (sizeof(T) == 4 && std::is_same_v<I, vi>)
    return (vec<T>)_mm512_mask_i32gather_epi32(_mm512_setzero_si512(), bits(m), (__m512i)index, (const int*)p, 4);
  else
#elif defined(KO_AVX2)
  if constexpr (sizeof(T) == 4 && std::is_same_v<I, vi>)
    return (vec<T>)_mm256_mask_i32gather_epi32(_mm256_setzero_si256(), (const int*)p, (__m256i)index, (__m256i)m, 4);
  else
#endif
  {
    vec<T> v = {};
    for (int l = 0; l < W; ++l) if (m[l]) v[l] = p[index[l]];
    return v;
  }
}
template <typename T, typename I> KO_INLINE void scatter_m(T* p, I index, vec<T> v, vi m) {
  for (int l = 0; l < W; ++l) if (m[l]) p[index[l]] = v[l];
}
template <typename T> KO_INLINE void atomic_add1(T* p, T x) {
#pragma omp atomic
  *p += x;
}

// Half types <-> float; storing rounds to nearest even.
KO_INLINE float bf16_to_float(uint16_t h) { const uint32_t u = uint32_t(h) << 16; float f; std::memcpy(&f, &u, 4); return f; }
KO_INLINE uint16_t float_to_bf16(float f) {
  uint32_t u; std::memcpy(&u, &f, 4);
  if (f != f) return 0x7fc0;
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}
KO_INLINE vf bf16_to_float(vec<uint16_t> h) { return (vf)(__builtin_convertvector(h, vec<uint32_t>) << 16); }
KO_INLINE vec<uint16_t> float_to_bf16(vf f) {
  const vec<uint32_t> u = (vec<uint32_t>)f;
  const vec<uint32_t> r = (u + 0x7fff + ((u >> 16) & 1)) >> 16;
  return __builtin_convertvector(f != f ? vec<uint32_t>{} + 0x7fc0 : r, vec<uint16_t>);
}
#ifdef __F16C__
KO_INLINE float f16_to_float(uint16_t h) { return _cvtsh_ss(h); }
KO_INLINE uint16_t float_to_f16(float f) { return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }
#else
KO_INLINE float f16_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = (h >> 10) & 31, mantissa = h & 1023;
  uint32_t u;
  if (exponent == 31) u = sign | 0x7f800000 | (mantissa << 13);
  else if (exponent != 0) u = sign | ((exponent + 112) << 23) | (mantissa << 13);
  else { float f = float(mantissa) * 0x1p-24f; std::memcpy(&u, &f, 4); u |= sign; }
  float r; std::memcpy(&r, &u, 4); return r;
}
KO_INLINE uint16_t float_to_f16(float f) { _Float16 h = (_Float16)f; uint16_t u; std::memcpy(&u, &h, 2); return u; }
#endif
#ifdef KO_AVX512
KO_INLINE vf f16_to_float(vec<uint16_t> h) { return (vf)_mm512_cvtph_ps((__m256i)h); }
KO_INLINE vec<uint16_t> float_to_f16(vf f) { return (vec<uint16_t>)_mm512_cvtps_ph((__m512)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#elif defined(KO_AVX2) && defined(__F16C__)
KO_INLINE vf f16_to_float(vec<uint16_t> h) { return (vf)_mm256_cvtph_ps((__m128i)h); }
KO_INLINE vec<uint16_t> float_to_f16(vf f) { return (vec<uint16_t>)_mm256_cvtps_ph((__m256)f, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
#else
KO_INLINE vf f16_to_float(vec<uint16_t> h) { vf r; for (int l = 0; l < W; ++l) r[l] = f16_to_float(uint16_t(h[l])); return r; }
KO_INLINE vec<uint16_t> float_to_f16(vf f) { vec<uint16_t> r; for (int l = 0; l < W; ++l) r[l] = float_to_f16(float(f[l])); return r; }
#endif
KO_INLINE vi bool_to_mask(vec<uint8_t> b) { return to_mask((vec<int8_t>)(b != 0)); }
KO_INLINE vec<uint8_t> mask_to_bool(vi m) { return __builtin_convertvector(m & 1, vec<uint8_t>); }
)KO";
}

}  // namespace kernelopt
