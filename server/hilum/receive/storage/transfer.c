/* A data set on its way in: from the socket of an association, through both digests, to its file.

   Python (`streaming/loop.py`) receives an association; behind the header of a fragment of a data set it calls `hilum_transfer`, which takes
   the fragment. P-DATA-TF PDUs of a large data set lie on the wire one after the other under equal headers (PS3.8 9.3.5): it takes as
   many more of them as look the same, and the data set's last one where it is alone in its PDU and no longer than they are. It returns in
   front of anything else: another length, another context, an A-ABORT. What is right is decided in Python, and the interpreter is free for
   other associations meanwhile.
   transfer_library.py says the same in ctypes. Any number of threads. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdalign.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { INTERFACE = 6 };

#if defined __x86_64__ && !defined PLAIN
#define NEEDS_AVX2
#endif

/* 0: this processor lacks what is compiled here. */
int32_t hilum_transfer_interface(void)
{
#ifdef NEEDS_AVX2
    if (!__builtin_cpu_supports("avx2"))
        return 0;
#endif
    return INTERFACE;
}

/* xxhash.h looks for what the compiler may use; with AVX2 it takes half the time. */
#ifdef NEEDS_AVX2
#pragma GCC target("avx2")
#endif
#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    BEGINNING = 12,        /* bytes: PDU header, item length, context, control (PS3.8 9.3.5, annex E.2) */
    SPANS = 512,           /* of one writev; IOV_MAX is 1024 */
    ROOM = 64 << 10,       /* a receive call for less is not worth it */
    SLICE = 32 << 10,      /* is still in the first cache when the second digest reads it */
    LENGTH = 6,            /* of them say how long the PDU is */
    PDU_HEADER = 6,        /* bytes of a PDU of one fragment that its own length counts beside the fragment's */
    DATA_IS_LAST = 2,      /* message control header */
    PEER_HAS_CLOSED = -1,
};

/* xxh3-128 of a data set and of its Pixel Data, at [pixels_start, pixels_end); both -1: it has none; an end of -1: up to its end. */
struct digests {
    XXH3_state_t whole, pixels;
    int64_t position, pixels_start, pixels_end;
};

struct transfer {
    /* The connection: unread bytes lie at [start, end) of the buffer. */
    uint8_t *buffer;
    int64_t capacity, start, end;
    int64_t first;            /* bytes of the fragment in progress, at most `limit`; out: those of them that were not taken */
    const uint8_t *beginning; /* of each PDU that follows, BEGINNING bytes; NULL: none is taken */
    int64_t fragment;         /* bytes of the data set behind it */
    int64_t limit;            /* bytes of the data set, no more are taken */
    /* The file. The bytes behind its end that are not written yet, fewer than `aligned`, lie in the one or the other half of `held`. */
    uint8_t *held;
    int64_t half, held_bytes, size, written_out, write_out, aligned;
    struct digests *digests;
    int64_t taken; /* out: bytes of the data set, lost ones too */
    int32_t socket, file;
    int32_t socket_problem, file_problem; /* out: errno, or PEER_HAS_CLOSED */
    int32_t is_last;                      /* the data set ends with the fragment in progress; out: with what was taken. None is held */
};

struct spans {
    struct iovec at[SPANS]; /* the first is what is held */
    int count;
    int64_t bytes;
};

int64_t hilum_digests_bytes(void) { return sizeof(struct digests) + alignof(struct digests); }

/* Somewhere in memory of `hilum_digests_bytes`. A seed of 0 is none. */
struct digests *hilum_digests_begin(void *memory, uint64_t seed, int64_t pixels_start, int64_t pixels_end)
{
    struct digests *digests = (void *)(((uintptr_t)memory + alignof(struct digests) - 1) & ~(uintptr_t)(alignof(struct digests) - 1));
    XXH3_128bits_reset_withSeed(&digests->whole, seed);
    XXH3_128bits_reset_withSeed(&digests->pixels, seed);
    digests->position = 0, digests->pixels_start = pixels_start, digests->pixels_end = pixels_end;
    return digests;
}

static void digest_slice(struct digests *digests, const uint8_t *bytes, int64_t count)
{
    int64_t start = digests->pixels_start - digests->position, end = count;
    XXH3_128bits_update(&digests->whole, bytes, count);
    if (digests->pixels_end >= 0 && digests->pixels_end - digests->position < end)
        end = digests->pixels_end - digests->position;
    if (start < 0)
        start = 0;
    if (digests->pixels_start >= 0 && start < end)
        XXH3_128bits_update(&digests->pixels, bytes + start, end - start);
    digests->position += count;
}

void hilum_digests_update(struct digests *digests, const uint8_t *bytes, int64_t count)
{
    for (int64_t at = 0; at < count; at += SLICE)
        digest_slice(digests, bytes + at, count - at < SLICE ? count - at : SLICE);
}

/* 16 bytes each, most significant first. */
void hilum_digests_end(const struct digests *digests, uint8_t *whole, uint8_t *pixels)
{
    XXH128_canonicalFromHash((XXH128_canonical_t *)whole, XXH3_128bits_digest(&digests->whole));
    XXH128_canonicalFromHash((XXH128_canonical_t *)pixels, XXH3_128bits_digest(&digests->pixels));
}

static uint8_t *held(const struct transfer *transfer, int64_t half) { return transfer->held + half * transfer->aligned; }

static void begin_spans(const struct transfer *transfer, struct spans *spans)
{
    spans->at[0] = (struct iovec){held(transfer, transfer->half), transfer->held_bytes};
    spans->count = 1, spans->bytes = transfer->held_bytes;
}

/* All of it; a nearly full disk takes a part and says so only in the count. */
static void write_all(struct transfer *transfer, struct iovec *at, int count)
{
    while (count > 0 && transfer->file_problem == 0) {
        ssize_t written = writev(transfer->file, at, count);
        if (written < 0) {
            if (errno != EINTR)
                transfer->file_problem = errno;
            continue;
        }
        transfer->size += written;
        for (; count > 0 && (size_t)written >= at->iov_len; at++, count--)
            written -= at->iov_len;
        if (count > 0)
            at->iov_base = (uint8_t *)at->iov_base + written, at->iov_len -= written;
    }
}

static void write_out(struct transfer *transfer)
{
    int64_t count = transfer->size - transfer->written_out;
    if (transfer->write_out > 0 && count >= transfer->write_out) {
        sync_file_range(transfer->file, transfer->written_out, count, SYNC_FILE_RANGE_WRITE); /* a hint: fdatasync says how it went */
        transfer->written_out = transfer->size;
    }
}

/* Cut the last `count` bytes off the spans, and copy them to where they end. */
static void cut(struct spans *spans, int64_t count, uint8_t *end)
{
    while (count > 0) {
        struct iovec *last = &spans->at[spans->count - 1];
        int64_t bytes = count < (int64_t)last->iov_len ? count : (int64_t)last->iov_len;
        end -= bytes, count -= bytes, last->iov_len -= bytes;
        memcpy(end, (uint8_t *)last->iov_base + last->iov_len, bytes);
        spans->count -= last->iov_len == 0;
    }
}

/* Write all but the end behind the last multiple of `aligned`, or that, too. Afterwards nothing points into the buffer. */
static void flush(struct transfer *transfer, struct spans *spans, int is_end)
{
    int64_t keep = is_end ? 0 : (transfer->size + spans->bytes) % transfer->aligned;
    if (transfer->file_problem != 0) {
        /* What comes now is let go. */
    } else if (keep >= spans->bytes) {
        keep = spans->bytes;
        cut(spans, keep - transfer->held_bytes, held(transfer, transfer->half) + keep);
        transfer->held_bytes = keep;
    } else {
        /* A multiple was reached, or the end, so that what was held is written, too. */
        transfer->half = 1 - transfer->half, transfer->held_bytes = keep;
        cut(spans, keep, held(transfer, transfer->half) + keep);
        write_all(transfer, spans->at, spans->count);
        write_out(transfer);
    }
    begin_spans(transfer, spans);
}

static void make_room(struct transfer *transfer, struct spans *spans)
{
    flush(transfer, spans, 0);
    memmove(transfer->buffer, transfer->buffer + transfer->start, transfer->end - transfer->start);
    transfer->end -= transfer->start, transfer->start = 0;
}

/* Wait for more bytes, as long as the socket's own time-out lets us. Whether there are some. */
static int fill(struct transfer *transfer, struct spans *spans)
{
    static const int on = 1;
    ssize_t count;
    int64_t room;
    if (transfer->capacity - transfer->end < ROOM)
        make_room(transfer, spans);
    room = transfer->capacity - transfer->end;
    do
        count = recv(transfer->socket, transfer->buffer + transfer->end, room, 0);
    while (count < 0 && errno == EINTR);
    if (count <= 0) {
        transfer->socket_problem = count < 0 ? errno : PEER_HAS_CLOSED;
        return 0;
    }
    transfer->end += count;
    if (count < room) /* as in streaming/connection.py: a peer with Nagle's algorithm would wait for a delayed acknowledgement */
        setsockopt(transfer->socket, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
    return 1;
}

/* Whether the next PDU begins as the last one did; waits as long as it may. */
static int is_alike(struct transfer *transfer, struct spans *spans)
{
    for (;;) {
        int64_t count = transfer->end - transfer->start;
        if (memcmp(transfer->buffer + transfer->start, transfer->beginning, count < BEGINNING ? count : BEGINNING) != 0)
            return 0;
        if (count >= BEGINNING)
            return 1;
        if (!fill(transfer, spans))
            return 0;
    }
}

static int64_t number(const uint8_t *bytes) { return (int64_t)bytes[0] << 24 | bytes[1] << 16 | bytes[2] << 8 | bytes[3]; }

/* Bytes of the data set's last fragment, if the next PDU holds that and nothing else; waits as long as it may. -1: it is something else. */
static int64_t last_fragment(struct transfer *transfer, struct spans *spans)
{
    for (;;) {
        const uint8_t *at = transfer->buffer + transfer->start, *alike = transfer->beginning;
        int64_t count = transfer->end - transfer->start, size = count < LENGTH ? 1 : number(at + 2) - PDU_HEADER;
        if (memcmp(at, alike, count < 2 ? count : 2) != 0 || size < 1 || size > transfer->fragment)
            return -1;
        if (count >= BEGINNING)
            return number(at + 6) == size + 2 && at[10] == alike[10] && at[11] == DATA_IS_LAST ? size : -1;
        if (!fill(transfer, spans))
            return -1;
    }
}

static void take(struct transfer *transfer, struct spans *spans, int64_t count)
{
    uint8_t *bytes = transfer->buffer + transfer->start;
    hilum_digests_update(transfer->digests, bytes, count);
    transfer->start += count;
    if (spans->count == SPANS)
        flush(transfer, spans, 0);
    spans->at[spans->count++] = (struct iovec){bytes, count};
    spans->bytes += count;
}

static int take_fragment(struct transfer *transfer, struct spans *spans, int64_t size)
{
    int64_t left = size;
    while (left > 0) {
        int64_t count = transfer->end - transfer->start;
        if (count == 0) {
            if (!fill(transfer, spans))
                return 0;
            continue;
        }
        count = count < left ? count : left;
        take(transfer, spans, count);
        left -= count;
    }
    transfer->taken += size;
    return 1;
}

static int may_go_on(const struct transfer *transfer)
{
    return transfer->beginning != NULL && transfer->file_problem == 0 && transfer->taken + transfer->fragment <= transfer->limit;
}

/* What follows the fragment in progress. */
static void take_more(struct transfer *transfer, struct spans *spans)
{
    int64_t last;
    while (may_go_on(transfer) && is_alike(transfer, spans)) {
        transfer->start += BEGINNING;
        if (!take_fragment(transfer, spans, transfer->fragment))
            return;
    }
    if (may_go_on(transfer) && transfer->socket_problem == 0 && (last = last_fragment(transfer, spans)) > 0) {
        transfer->start += BEGINNING;
        transfer->is_last = take_fragment(transfer, spans, last);
    }
}

/* Until something else comes, `limit` is reached, or there is a problem. With the file: the PDU in progress is still received. */
void hilum_transfer(struct transfer *transfer)
{
    struct spans spans;
    begin_spans(transfer, &spans);
    if (take_fragment(transfer, &spans, transfer->first)) {
        transfer->first = 0;
        take_more(transfer, &spans);
    }
    flush(transfer, &spans, transfer->is_last);
}
