/* A resize of one picture on a CPU: rows first, four at a time, straight from the stored samples; and their smallest and largest one.
   Called by compiled.py, which says what the arrays hold and why this is written in C. No allocation, no global state: any number of threads may call it.

   Plain loops, which GCC and Clang make vectors of. The loop over stored samples is compiled a second time for AVX2, because a library
   that is built on one machine and copied to another can only count on SSE2. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define INTERFACE 1 /* compiled.py refuses a library with another number */
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

/* `memory` (slots, width): a row of the result is summed in slot `row % slots` while steps add to it, then resampled across. */
INLINE void resize(const Source *source, const Down *down, const Across *across, float *memory, int64_t width, float *out, int32_t ends[2])
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
            for (int k = 0; k < STEP; k++) {
                const int row = at_most(STEP * step + k, source->rows - 1); /* beyond the end: weight 0 */
                fetch(source, at_most(row + AHEAD, source->rows - 1) * source->stride + j, n);
                read_samples(source, row * source->stride + j, n, rows[k]);
                widen(source, row * source->stride + j, n, ends);
            }
            for (int i = 0; i < count; i++)
                add_rows(memory + ((first + i) % down->slots) * width + j, rows, weights + STEP * i, n);
        }
        weights += STEP * count;
        for (; finished < done; finished++, out += across->outputs) {
            const float *sums = memory + (finished % down->slots) * width;
            for (int i = 0; i < across->outputs; i++)
                out[i] = product(sums + across->first[i], across->weights + (int64_t)i * across->taps, across->taps);
        }
    }
}

INLINE void extremes(const Source *source, int32_t ends[2])
{
    for (int row = 0; row < source->rows; row++) widen(source, row * source->stride, source->columns, ends);
}

#ifdef __x86_64__
#define AVX2 __attribute__((target("avx2,fma")))
AVX2 static void resize_avx2(const Source *source, const Down *down, const Across *across, float *memory, int64_t width, float *out, int32_t ends[2])
{
    resize(source, down, across, memory, width, out, ends);
}
AVX2 static void extremes_avx2(const Source *source, int32_t ends[2]) { extremes(source, ends); }
#define HAS_AVX2 (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
#else
#define resize_avx2 resize
#define extremes_avx2 extremes
#define HAS_AVX2 0
#endif

/* `out` (down.outputs, across.outputs). `ends`: widened to the smallest and the largest stored sample, before clamps and lookup; not for floats. */
void hilum_resize(const Source *source, const Down *down, const Across *across, float *memory, int64_t width, float *out, int32_t ends[2])
{
    if (HAS_AVX2) resize_avx2(source, down, across, memory, width, out, ends);
    else resize(source, down, across, memory, width, out, ends);
}

/* `ends` as above. */
void hilum_extremes(const Source *source, int32_t ends[2])
{
    if (HAS_AVX2) extremes_avx2(source, ends);
    else extremes(source, ends);
}
