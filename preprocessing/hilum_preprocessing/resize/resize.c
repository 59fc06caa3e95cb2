/* Resizes of one picture on a CPU, straight from the stored samples: in floats, rows first, four at a time; in whole grey levels as
   Pillow does, columns first. And the smallest and the largest stored sample, how often each is there, and what the pixel guard looks
   at. Called by resize/library.py; resize/compiled.py says why this is written in C. No allocation, no global state: any number of threads may call it.

   Plain loops, which GCC and Clang make vectors of, and two by hand (products_avx2, narrow_row_avx2). What takes time is compiled a second
   time for AVX2, because a library that is built on one machine and copied to another can only count on SSE2. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && !defined(PLAIN) /* PLAIN: as on other processors, for a test */
#include <cpuid.h>
#include <immintrin.h>
#define X86
#endif

#define INTERFACE 5 /* resize/library.py refuses a library with another number */
#define STEP 4      /* rows that are added at once: each sum is then loaded and stored a fourth as often */
#define CHUNK 256   /* columns: measured; four rows of floats and the sums that they go to stay in the first cache */
#define AHEAD 8     /* rows: what a processor fetches by itself begins anew with every row of a chunk */
#define LANES 8     /* taps across come in multiples of it; what is over has weight 0 */

#define INLINE static inline __attribute__((always_inline))

enum { UINT8, INT8, UINT16, INT16, FLOAT32 };

typedef struct {
    const void *samples;  /* row r begins `stride` samples after row r - 1 */
    int64_t stride;
    int32_t rows, columns, type;
    int32_t is_clamped;   /* then to low..high, before anything else */
    float low, high;
    const float *lookup;  /* or NULL; by the stored bits, seen as an unsigned number */
    const uint8_t *levels; /* the same for whole grey levels; NULL: samples of UINT8 are grey levels */
} Source;

typedef struct {
    int32_t steps, slots, outputs;
    const int32_t *first;   /* (steps): the first row of the result that the step adds to */
    const int32_t *count;   /* (steps): and how many */
    const int32_t *done;    /* (steps): rows of the result that are complete after it */
    const float *weights;   /* (sum of count, STEP) */
} Down;

typedef struct {
    int32_t outputs, taps;
    const int32_t *first;   /* (outputs) */
    const float *weights;   /* (outputs, taps) */
} Across;

INLINE int at_most(int value, int limit) { return value < limit ? value : limit; }

/* Pillow's weights, whole numbers of which ONE is 1.0: `high * HALF + low`, so that 16 bits hold either. No sum leaves 32 bits. */
#define ONE_BITS 22
#define HALF_BITS 11
#define HALF (1 << HALF_BITS)

typedef struct {
    int32_t outputs, taps;
    const int32_t *first;   /* (outputs) */
    const int16_t *high, *low; /* (outputs, taps) */
} WholeAcross;

typedef struct {
    int32_t outputs, taps;
    const int32_t *first;   /* (outputs) */
    const int32_t *weights; /* (outputs, taps); tap t of output i stands in row first[i] + t, or is 0 */
} WholeDown;

int hilum_resize_interface(void) { return INTERFACE; }

#define CONVERT(TYPE) \
    do { const TYPE *restrict in = (const TYPE *)source->samples + begin; for (int j = 0; j < n; j++) out[j] = (float)in[j]; } while (0)
#define LOOK_UP(TYPE) \
    do { const TYPE *restrict in = (const TYPE *)source->samples + begin; for (int j = 0; j < n; j++) out[j] = source->lookup[in[j]]; } while (0)

/* `n` samples from `begin` on as floats. */
INLINE void read_samples(const Source *source, int64_t begin, int n, float *restrict out)
{
    if (source->lookup) {
        if (source->type == UINT8 || source->type == INT8) LOOK_UP(uint8_t); else LOOK_UP(uint16_t);
        return;
    }
    switch (source->type) {
    case UINT8: CONVERT(uint8_t); break;
    case INT8: CONVERT(int8_t); break;
    case UINT16: CONVERT(uint16_t); break;
    case INT16: CONVERT(int16_t); break;
    default: CONVERT(float);
    }
    if (!source->is_clamped) return;
    const float low = source->low, high = source->high;
    for (int j = 0; j < n; j++) {
        float x = out[j] < low ? low : out[j];
        out[j] = x > high ? high : x;
    }
}

#define WIDEN(TYPE) \
    do { \
        const TYPE *restrict in = (const TYPE *)source->samples + begin; \
        TYPE least = in[0], most = in[0]; \
        for (int j = 1; j < n; j++) { least = in[j] < least ? in[j] : least; most = in[j] > most ? in[j] : most; } \
        if (least < ends[0]) ends[0] = least; \
        if (most > ends[1]) ends[1] = most; \
    } while (0)

/* Widens `ends` to the smallest and the largest of `n` stored samples from `begin` on; not of floats. */
INLINE void widen(const Source *source, int64_t begin, int n, int32_t ends[2])
{
    switch (source->type) {
    case UINT8: WIDEN(uint8_t); break;
    case INT8: WIDEN(int8_t); break;
    case UINT16: WIDEN(uint16_t); break;
    case INT16: WIDEN(int16_t); break;
    }
}

#define WIDEN_STEP(TYPE) \
    do { \
        const TYPE *restrict a = (const TYPE *)source->samples + begins[0], *restrict b = (const TYPE *)source->samples + begins[1]; \
        const TYPE *restrict c = (const TYPE *)source->samples + begins[2], *restrict d = (const TYPE *)source->samples + begins[3]; \
        TYPE least = a[0], most = a[0]; \
        for (int j = 0; j < n; j++) { \
            const TYPE p = a[j] < b[j] ? a[j] : b[j], q = c[j] < d[j] ? c[j] : d[j], r = p < q ? p : q; \
            const TYPE s = a[j] > b[j] ? a[j] : b[j], t = c[j] > d[j] ? c[j] : d[j], u = s > t ? s : t; \
            least = r < least ? r : least; \
            most = u > most ? u : most; \
        } \
        if (least < ends[0]) ends[0] = least; \
        if (most > ends[1]) ends[1] = most; \
    } while (0)

/* The same of STEP rows at once: to find the least of the parts of a vector takes as long as a third of a chunk. */
INLINE void widen_step(const Source *source, const int64_t begins[STEP], int n, int32_t ends[2])
{
    switch (source->type) {
    case UINT8: WIDEN_STEP(uint8_t); break;
    case INT8: WIDEN_STEP(int8_t); break;
    case UINT16: WIDEN_STEP(uint16_t); break;
    case INT16: WIDEN_STEP(int16_t); break;
    }
}

/* Asks for `n` samples from `begin` on, which will soon be read. */
INLINE void fetch(const Source *source, int64_t begin, int n)
{
    const int size = source->type == FLOAT32 ? 4 : source->type == UINT16 || source->type == INT16 ? 2 : 1;
    const char *from = (const char *)source->samples + begin * size;
    for (int at = 0; at < n * size; at += 64) __builtin_prefetch(from + at);
}

INLINE void add_rows(float *restrict sums, float rows[STEP][CHUNK], const float *weights, int n)
{
    const float a = weights[0], b = weights[1], c = weights[2], d = weights[3];
    for (int j = 0; j < n; j++) sums[j] += a * rows[0][j] + b * rows[1][j] + c * rows[2][j] + d * rows[3][j];
}

/* Eight sums and not one: a compiler must not change the order of additions by itself. */
INLINE float product(const float *restrict x, const float *restrict weights, int taps)
{
    float s[LANES] = {0};
    for (int t = 0; t < taps; t += LANES)
        for (int k = 0; k < LANES; k++) s[k] += x[t + k] * weights[t + k];
    return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/* The outputs across from `i` on, of one row of sums. */
INLINE void products_from(int i, const float *sums, const Across *across, float *out)
{
    for (; i < across->outputs; i++) out[i] = product(sums + across->first[i], across->weights + (int64_t)i * across->taps, across->taps);
}

static void products(const float *sums, const Across *across, float *out) { products_from(0, sums, across, out); }

/* `memory` (slots, width): a row of the result is summed in slot `row % slots` while steps add to it, then resampled across. */
INLINE void resize(const Source *source, const Down *down, const Across *across, float *memory, int64_t width, float *out, int32_t ends[2],
                   void (*products_of)(const float *, const Across *, float *))
{
    float rows[STEP][CHUNK] __attribute__((aligned(64)));
    const float *weights = down->weights;
    int opened = 0, finished = 0;
    for (int step = 0; step < down->steps; step++) {
        const int first = down->first[step], count = down->count[step], done = down->done[step];
        for (; opened < first + count || opened < done; opened++)
            memset(memory + (opened % down->slots) * width, 0, (size_t)width * sizeof(float));
        for (int j = 0; j < source->columns; j += CHUNK) {
            const int n = at_most(source->columns - j, CHUNK);
            int64_t begins[STEP];
            for (int k = 0; k < STEP; k++) {
                const int row = at_most(STEP * step + k, source->rows - 1); /* beyond the end: weight 0 */
                fetch(source, at_most(row + AHEAD, source->rows - 1) * source->stride + j, n);
                begins[k] = row * source->stride + j;
                read_samples(source, begins[k], n, rows[k]);
            }
            widen_step(source, begins, n, ends);
            for (int i = 0; i < count; i++)
                add_rows(memory + ((first + i) % down->slots) * width + j, rows, weights + STEP * i, n);
        }
        weights += STEP * count;
        for (; finished < done; finished++, out += across->outputs) products_of(memory + (finished % down->slots) * width, across, out);
    }
}

/* Grey level of a sum with Pillow's weights: one half added, shifted down, clipped (Resample.c, clip8). */
INLINE uint8_t grey(int32_t sum)
{
    const int32_t level = (sum + (1 << (ONE_BITS - 1))) >> ONE_BITS;
    return (uint8_t)(level < 0 ? 0 : level > 255 ? 255 : level);
}

#define GREY(TYPE, LEVEL) \
    do { \
        const TYPE *restrict in = (const TYPE *)source->samples + begin; \
        for (int j = 0; j < source->columns; j++) out[j] = LEVEL; \
    } while (0)

/* The grey levels of the row that begins at `begin`. */
INLINE void read_grey(const Source *source, int64_t begin, int16_t *restrict out)
{
    const uint8_t *restrict levels = source->levels;
    if (!levels) GREY(uint8_t, in[j]);
    else if (source->type == UINT8 || source->type == INT8) GREY(uint8_t, levels[in[j]]);
    else GREY(uint16_t, levels[in[j]]);
}

INLINE int32_t whole_product(const int16_t *restrict x, const int16_t *restrict high, const int16_t *restrict low, int taps)
{
    int32_t highs = 0, lows = 0;
    for (int t = 0; t < taps; t++) highs += x[t] * high[t];
    for (int t = 0; t < taps; t++) lows += x[t] * low[t];
    return highs * HALF + lows;
}

/* The outputs across from `i` on, of one row of grey levels. */
INLINE void narrow_from(int i, const int16_t *line, const WholeAcross *across, uint8_t *out)
{
    for (; i < across->outputs; i++) {
        const int64_t at = (int64_t)i * across->taps;
        out[i] = grey(whole_product(line + across->first[i], across->high + at, across->low + at, across->taps));
    }
}

static void narrow_row(const int16_t *line, const WholeAcross *across, uint8_t *out) { narrow_from(0, line, across, out); }

/* `line` (columns and the taps beyond them, which are 0), `narrow` (rows, across.outputs). */
INLINE void resize_whole(const Source *source, const WholeDown *down, const WholeAcross *across, int16_t *line, uint8_t *narrow, uint8_t *out,
                         void (*narrow_one)(const int16_t *, const WholeAcross *, uint8_t *))
{
    const int outputs = across->outputs;
    for (int row = 0; row < source->rows; row++) {
        fetch(source, at_most(row + 2, source->rows - 1) * source->stride, source->columns);
        read_grey(source, row * source->stride, line);
        narrow_one(line, across, narrow + (int64_t)row * outputs);
    }
    for (int i = 0; i < down->outputs; i++)
        for (int j = 0; j < outputs; j += CHUNK) {
            const int n = at_most(outputs - j, CHUNK);
            int32_t sums[CHUNK] = {0};
            for (int t = 0; t < down->taps; t++) {
                const int32_t weight = down->weights[(int64_t)i * down->taps + t];
                const uint8_t *restrict x = narrow + (int64_t)at_most(down->first[i] + t, source->rows - 1) * outputs + j;
                for (int k = 0; k < n; k++) sums[k] += weight * x[k];
            }
            for (int k = 0; k < n; k++) out[(int64_t)i * outputs + j + k] = grey(sums[k]);
        }
}

#define COUNT(TYPE) \
    do { \
        const TYPE *restrict in = (const TYPE *)source->samples + row * source->stride; \
        int j = 0; \
        for (; j + 4 <= source->columns; j += 4) \
            for (int k = 0; k < 4; k++) tables[k * entries + in[j + k]]++; \
        for (; j < source->columns; j++) tables[in[j]]++; \
    } while (0)

/* What is done to the result of a resize: slope * x + offset times the sums of both matrices, then not below low and not above high. */
typedef struct {
    int32_t rows, columns;
    float slope, offset, low, high;
    const float *down, *across; /* (rows), (columns): the sums */
} Finish;

/* `is_fused`: as torch does it on a processor that can, so that both say the same to the bit in whole sixteens of columns. In the rest
   torch rounds otherwise, which may differ in a float's last bit; here each column is treated alike. */
INLINE void finish(const Finish *how, float *restrict image, int is_fused)
{
    const float *restrict across = how->across;
    const float slope = how->slope, low = how->low, high = how->high;
    for (int row = 0; row < how->rows; row++, image += how->columns) {
        const float offset = how->offset * how->down[row];
        for (int j = 0; j < how->columns; j++) {
            const float level = slope * image[j];
            float x = is_fused ? __builtin_fmaf(offset, across[j], level) : offset * across[j] + level;
            x = x < low ? low : x;
            image[j] = x > high ? high : x;
        }
    }
}

INLINE void extremes(const Source *source, int32_t ends[2])
{
    for (int row = 0; row < source->rows; row++) {
        /* By itself a processor fetches to the end of a page of memory: a third of the time of pixels that no cache holds. */
        fetch(source, at_most(row + 2, source->rows - 1) * source->stride, source->columns);
        widen(source, row * source->stride, source->columns, ends);
    }
}

#ifdef X86
#define AVX2 __attribute__((target("avx2,fma")))
/* The eight partial sums of `product`. */
AVX2 static inline __m256 partial_products(int i, const float *sums, const Across *across)
{
    const float *x = sums + across->first[i], *weights = across->weights + (int64_t)i * across->taps;
    __m256 s = _mm256_setzero_ps();
    for (int t = 0; t < across->taps; t += LANES) s = _mm256_fmadd_ps(_mm256_loadu_ps(x + t), _mm256_loadu_ps(weights + t), s);
    return s;
}

/* Both halves of two of them added: those of `p`, then those of `q`. */
AVX2 static inline __m256 folded(__m256 p, __m256 q)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(p, q, 0x20), _mm256_permute2f128_ps(p, q, 0x31));
}

/* The same again, with the halves of halves: p and q of the lower half, p and q of the upper one. */
AVX2 static inline __m256 folded_again(__m256 p, __m256 q)
{
    return _mm256_add_ps(_mm256_shuffle_ps(p, q, 0x44), _mm256_shuffle_ps(p, q, 0xee));
}

/* products, whose compiler adds up the lanes of each output by itself: most of its time where there are few taps. Here those of eight outputs are
   added up at once, in the order of `product`. */
AVX2 static void products_avx2(const float *sums, const Across *across, float *out)
{
    int i = 0;
    for (; i + 8 <= across->outputs; i += 8) {
        __m256 s[8];
        for (int k = 0; k < 8; k++) s[k] = partial_products(i + k, sums, across);
        const __m256 left = folded_again(folded(s[0], s[4]), folded(s[1], s[5])), right = folded_again(folded(s[2], s[6]), folded(s[3], s[7]));
        _mm256_storeu_ps(out + i, _mm256_hadd_ps(left, right));
    }
    products_from(i, sums, across, out);
}

AVX2 static void resize_avx2(const Source *source, const Down *down, const Across *across, float *memory, int64_t width, float *out, int32_t ends[2])
{
    resize(source, down, across, memory, width, out, ends, products_avx2);
}

/* Eight partial sums of one output across. */
AVX2 static inline __m256i partial_sums(int i, const int16_t *line, const WholeAcross *across)
{
    const int16_t *x = line + across->first[i], *high = across->high + (int64_t)i * across->taps, *low = across->low + (int64_t)i * across->taps;
    __m256i highs = _mm256_setzero_si256(), lows = highs;
    for (int t = 0; t < across->taps; t += 16) {
        const __m256i levels = _mm256_loadu_si256((const __m256i *)(x + t));
        highs = _mm256_add_epi32(highs, _mm256_madd_epi16(levels, _mm256_loadu_si256((const __m256i *)(high + t))));
        lows = _mm256_add_epi32(lows, _mm256_madd_epi16(levels, _mm256_loadu_si256((const __m256i *)(low + t))));
    }
    return _mm256_add_epi32(_mm256_slli_epi32(highs, HALF_BITS), lows);
}

/* narrow_row, whose compiler adds up the lanes of each output by itself: half of its time. Here eight outputs are added up at once. */
AVX2 static void narrow_row_avx2(const int16_t *line, const WholeAcross *across, uint8_t *out)
{
    int i = 0;
    for (; i + 8 <= across->outputs; i += 8) {
        __m256i s[8];
        for (int k = 0; k < 8; k++) s[k] = partial_sums(i + k, line, across);
        const __m256i left = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
        const __m256i right = _mm256_hadd_epi32(_mm256_hadd_epi32(s[4], s[5]), _mm256_hadd_epi32(s[6], s[7]));
        const __m256i sums = _mm256_add_epi32(_mm256_permute2x128_si256(left, right, 0x20), _mm256_permute2x128_si256(left, right, 0x31));
        int32_t eight[8];
        memcpy(eight, &sums, sizeof eight);
        for (int k = 0; k < 8; k++) out[i + k] = grey(eight[k]);
    }
    narrow_from(i, line, across, out);
}

AVX2 static void resize_whole_avx2(const Source *source, const WholeDown *down, const WholeAcross *across, int16_t *line, uint8_t *narrow, uint8_t *out)
{
    resize_whole(source, down, across, line, narrow, out, narrow_row_avx2);
}
AVX2 static void extremes_avx2(const Source *source, int32_t ends[2]) { extremes(source, ends); }
AVX2 static void finish_avx2(const Finish *how, float *image) { finish(how, image, 1); }

/* `n` floats in half precision, rounded to the nearest and to even. */
__attribute__((target("avx2,f16c"))) static void halve(const float *from, int n, uint16_t *to)
{
    int j = 0;
    for (; j + 8 <= n; j += 8) _mm_storeu_si128((__m128i *)(to + j), _mm256_cvtps_ph(_mm256_loadu_ps(from + j), _MM_FROUND_TO_NEAREST_INT));
    if (j == n) return;
    float rest[8] = {0};
    uint16_t halves[8];
    memcpy(rest, from + j, (size_t)(n - j) * sizeof *rest);
    _mm_storeu_si128((__m128i *)halves, _mm256_cvtps_ph(_mm256_loadu_ps(rest), _MM_FROUND_TO_NEAREST_INT));
    memcpy(to + j, halves, (size_t)(n - j) * sizeof *halves);
}

#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define extremes_avx2 extremes
#define HAS_AVX2 0
#endif

/* `out` (down.outputs, across.outputs). `ends`: widened to the smallest and the largest stored sample, before clamps and lookup; not for floats. */
void hilum_resize(const Source *source, const Down *down, const Across *across, float *memory, int64_t width, float *out, int32_t ends[2])
{
#ifdef X86
    if (HAS_AVX2) { resize_avx2(source, down, across, memory, width, out, ends); return; }
#endif
    resize(source, down, across, memory, width, out, ends, products);
}

/* `image` (rows, columns), in its place. */
void hilum_finish(const Finish *how, float *image)
{
#ifdef X86
    if (HAS_AVX2) { finish_avx2(how, image); return; }
#endif
    finish(how, image, 0);
}

/* Whether hilum_halves does anything here. */
int hilum_has_halves(void)
{
#ifdef X86
    unsigned a, b, c, d;
    return HAS_AVX2 && __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
#else
    return 0;
#endif
}

/* hilum_finish, and each row that is finished into `halves` (rows, columns) while it lies in the first cache. */
void hilum_halves(const Finish *how, float *image, uint16_t *halves)
{
#ifdef X86
    Finish row = *how;
    for (row.rows = 1; row.down < how->down + how->rows; row.down++, image += row.columns, halves += row.columns) {
        finish_avx2(&row, image);
        halve(image, row.columns, halves);
    }
#endif
}

/* `ends` as above. */
void hilum_extremes(const Source *source, int32_t ends[2])
{
    if (HAS_AVX2) extremes_avx2(source, ends);
    else extremes(source, ends);
}

/* `out` (down.outputs, across.outputs). */
void hilum_resize_whole(const Source *source, const WholeDown *down, const WholeAcross *across, int16_t *line, uint8_t *narrow, uint8_t *out)
{
#ifdef X86
    if (HAS_AVX2) { resize_whole_avx2(source, down, across, line, narrow, out); return; }
#endif
    resize_whole(source, down, across, line, narrow, out, narrow_row);
}

/* `tables` (4, entries): how often each stored sample is there, by its bits. Four tables, because neighbours are often equal, and a counter that
   was just written is slow to read. */
void hilum_counts(const Source *source, uint32_t *tables, int64_t entries)
{
    for (int64_t row = 0; row < source->rows; row++) {
        if (source->type == UINT8 || source->type == INT8) COUNT(uint8_t); else COUNT(uint16_t);
    }
}

#define BINS 64 /* of the levels, as in guard/pixels.py */
#define PLACES 4
#define PAIRWISE 128 /* numpy's: above it a sum is that of its halves */

typedef struct {
    const void *samples; /* every so many rows and columns of a picture: strides in samples */
    int64_t row_stride, column_stride;
    int32_t rows, columns, type, is_inverted;
    double lowest, nominal; /* a stored sample of `lowest` is 0; what is shown at most */
    double parts[2];        /* of the 1st and the 99th percentile: how far it lies from one place in the order to the next */
    int32_t places[PLACES]; /* (2, 2): these places */
} Look;

typedef struct {
    double low, high; /* percentiles */
    int32_t counts[BINS], dark, bright;
    double variance, mirrored, spine, lungs[2];
} Seen;

static double pairwise(const double *x, int n)
{
    if (n < 8) {
        double total = 0;
        for (int i = 0; i < n; i++) total += x[i];
        return total;
    }
    if (n > PAIRWISE) {
        const int half = n / 2 - n / 2 % 8;
        return pairwise(x, half) + pairwise(x + half, n - half);
    }
    double s[8];
    for (int k = 0; k < 8; k++) s[k] = x[k];
    int i = 8;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++) s[k] += x[i + k];
    double total = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    for (; i < n; i++) total += x[i];
    return total;
}

/* The mean of `n` numbers, added up in numpy 2's order, so that both say the same to the bit. */
static double mean(const double *x, int n)
{
    return pairwise(x, n) / n;
}

/* Of the columns from..to, counted from the right if `is_mirrored`, in the rows top..bottom of `x` (…, columns); `memory` for as many numbers. */
static double mean_within(const double *x, int columns, int top, int bottom, int from, int to, int is_mirrored, double *memory)
{
    double *end = memory;
    for (int row = top; row < bottom; row++)
        for (int j = from; j < to; j++) *end++ = x[(int64_t)row * columns + (is_mirrored ? columns - 1 - j : j)];
    return mean(memory, (int)(end - memory));
}

#define GATHER(TYPE, FLIP) \
    do { \
        for (int row = 0; row < look->rows; row++) { \
            const TYPE *in = (const TYPE *)look->samples + row * look->row_stride; \
            for (int j = 0; j < look->columns; j++) *to++ = (uint16_t)((uint16_t)in[j * look->column_stride] ^ FLIP); \
        } \
    } while (0)

/* The samples, in whose order unsigned numbers are the same: signed ones have their sign turned round. */
static void gather(const Look *look, uint16_t *to)
{
    switch (look->type) {
    case UINT8: GATHER(uint8_t, 0); break;
    case INT8: GATHER(int8_t, 0x8000); break;
    case UINT16: GATHER(uint16_t, 0); break;
    default: GATHER(int16_t, 0x8000);
    }
}

/* How many of the numbers with this upper half have which lower half. */
static void count_lower(const uint16_t *keys, int n, int upper, int32_t counts[256])
{
    memset(counts, 0, 256 * sizeof *counts);
    for (int i = 0; i < n; i++) counts[keys[i] & 255] += keys[i] >> 8 == upper;
}

/* What is shown of it: from 0 on, bright as on a viewer. */
static inline double shown(const Look *look, uint16_t key)
{
    const int is_signed = look->type == INT8 || look->type == INT16;
    const double sample = (double)(is_signed ? key - 32768 : key) - look->lowest;
    return look->is_inverted ? look->nominal - sample : sample;
}

/* The numbers that stand at the places: first their upper halves, then their lower ones. */
static void percentiles(const Look *look, const uint16_t *keys, int n, Seen *seen)
{
    int32_t upper[256] = {0}, lower[256];
    double found[PLACES];
    for (int i = 0; i < n; i++) upper[keys[i] >> 8]++;
    for (int k = 0, counted = -1; k < PLACES; k++) {
        int place = look->is_inverted ? n - 1 - look->places[k] : look->places[k], high = 0, low = 0;
        for (; place >= upper[high]; high++) place -= upper[high];
        if (high != counted) count_lower(keys, n, counted = high, lower);
        for (; place >= lower[low]; low++) place -= lower[low];
        found[k] = shown(look, (uint16_t)(high << 8 | low));
    }
    seen->low = found[0] + (found[1] - found[0]) * look->parts[0];
    seen->high = found[2] + (found[3] - found[2]) * look->parts[1];
}

/* Statistics of guard/pixels.py. `keys` (n), `levels` (n) and `products` (n) are memory for the n = rows * columns samples of the grid.
   Compiled for no extension: with fused multiplications, sums would differ from numpy's in their last bits. */
void hilum_look(const Look *look, uint16_t *keys, double *levels, double *products, Seen *seen)
{
    const int rows = look->rows, columns = look->columns, n = rows * columns;
    gather(look, keys);
    percentiles(look, keys, n, seen);
    const double low = seen->low, span = seen->high - low > 1e-9 ? seen->high - low : 1e-9;
    int dark = 0, bright = 0;
    for (int i = 0; i < n; i++) {
        const double sample = shown(look, keys[i]), level = (sample - low) / span;
        dark += sample <= 0;
        bright += sample >= look->nominal;
        levels[i] = level < 0 ? 0 : level > 1 ? 1 : level;
    }
    seen->dark = dark;
    seen->bright = bright;
    for (int i = 0; i < n; i++) seen->counts[(int)(levels[i] * (BINS - 1))]++;
    const int top = rows / 3, bottom = 2 * rows / 3 > top + 1 ? 2 * rows / 3 : top + 1, begin = 2 * columns / 5, edge = columns / 6;
    const int end = 3 * columns / 5 > begin + 1 ? 3 * columns / 5 : begin + 1, inner = columns / 3 > edge + 1 ? columns / 3 : edge + 1;
    seen->spine = mean_within(levels, columns, top, bottom, begin, end, 0, products);
    seen->lungs[0] = mean_within(levels, columns, top, bottom, edge, inner, 0, products);
    seen->lungs[1] = mean_within(levels, columns, top, bottom, edge, inner, 1, products);
    const double middle = mean(levels, n);
    for (int i = 0; i < n; i++) levels[i] -= middle;
    for (int i = 0; i < n; i++) products[i] = levels[i] * levels[i];
    seen->variance = mean(products, n);
    for (int row = 0; row < rows; row++) {
        const double *x = levels + (int64_t)row * columns;
        for (int j = 0; j < columns; j++) products[row * columns + j] = x[j] * x[columns - 1 - j];
    }
    seen->mirrored = mean(products, n);
}
