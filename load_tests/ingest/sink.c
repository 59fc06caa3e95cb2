/* The least that a durable C-STORE SCP can do: a process for each association, PDVs into a file, fdatasync, the folder's fsync, Success.
   Nothing is checked, parsed or indexed. What `make bench-ingest` compares with: usage: sink PORT FOLDER */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define LARGEST (1 << 20)
static uint8_t pdu[LARGEST], answer[4096];

static uint32_t be32(const uint8_t *at) { return (uint32_t)at[0] << 24 | at[1] << 16 | at[2] << 8 | at[3]; }
static uint16_t be16(const uint8_t *at) { return at[0] << 8 | at[1]; }
static void put32(uint8_t *at, uint32_t value) { value = htonl(value); memcpy(at, &value, 4); }
static void put16(uint8_t *at, uint16_t value) { value = htons(value); memcpy(at, &value, 2); }

static void read_all(int peer, uint8_t *into, size_t count) {
    int on = 1;
    while (count) {
        ssize_t got = recv(peer, into, count, 0);
        if (got <= 0) exit(0);
        setsockopt(peer, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
        into += got;
        count -= got;
    }
}

static void write_all(int file, const uint8_t *from, size_t count) {
    while (count) {
        ssize_t put = write(file, from, count);
        if (put <= 0) exit(1);
        from += put;
        count -= put;
    }
}

/* A-ASSOCIATE-AC (PS3.8 9.3.3): every context with the first of its Transfer Syntaxes. */
static size_t accept_all(size_t length) {
    uint8_t *out = answer + 74;
    memcpy(answer, pdu, 74);
    answer[0] = 2;
    for (uint8_t *item = pdu + 74; item < pdu + 6 + length; item += 4 + be16(item + 2)) {
        if (item[0] == 0x10) {
            memcpy(out, item, 4 + be16(item + 2));
            out += 4 + be16(item + 2);
        } else if (item[0] == 0x20) {
            uint8_t *syntax = item + 8;
            while (syntax[0] != 0x40) syntax += 4 + be16(syntax + 2);
            uint16_t size = 4 + be16(syntax + 2);
            memset(out, 0, 8);
            out[0] = 0x21;
            put16(out + 2, 4 + size);
            out[4] = item[4];
            memcpy(out + 8, syntax, size);
            out += 8 + size;
        }
    }
    uint8_t user[] = {0x50, 0, 0, 17, 0x51, 0, 0, 4, 0, 2, 0, 0, 0x52, 0, 0, 5, '1', '.', '2', '.', '3'};
    memcpy(out, user, sizeof user);
    out += sizeof user;
    put32(answer + 2, out - answer - 6);
    return out - answer;
}

/* C-STORE-RSP (PS3.7 9.3.1.2) without what is optional. */
static void succeed(int peer, uint8_t context, const uint8_t *message_id) {
    uint8_t command[] = {0, 0, 0, 0, 4, 0, 0, 0, 40, 0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 1, 0x80, 0, 0, 0x20, 1, 2, 0, 0, 0, 0, 0,
                         0, 0, 0, 8, 2, 0, 0, 0, 1, 1, 0, 0, 0, 9, 2, 0, 0, 0, 0, 0};
    memcpy(command + 30, message_id, 2);
    answer[0] = 4;
    answer[1] = 0;
    put32(answer + 2, sizeof command + 6);
    put32(answer + 6, sizeof command + 2);
    answer[10] = context;
    answer[11] = 3;
    memcpy(answer + 12, command, sizeof command);
    write_all(peer, answer, sizeof command + 12);
}

static void serve(int peer, const char *folder) {
    static char name[4096];
    uint8_t message_id[2] = {0};
    int file = -1, directory = open(folder, O_RDONLY | O_DIRECTORY);
    for (unsigned number = 0;;) {
        read_all(peer, pdu, 6);
        uint32_t length = be32(pdu + 2);
        if (length > LARGEST - 6) exit(1);
        read_all(peer, pdu + 6, length);
        if (pdu[0] == 1) write_all(peer, answer, accept_all(length));
        if (pdu[0] == 5) {
            pdu[0] = 6;
            write_all(peer, pdu, 10);
        }
        if (pdu[0] != 4) continue;
        for (uint8_t *item = pdu + 6; item < pdu + 6 + length; item += 4 + be32(item)) {
            uint8_t *content = item + 6;
            uint32_t size = be32(item) - 2;
            if (item[5] & 1) {
                for (uint8_t *element = content; element < content + size; element += 8 + (element[4] | element[5] << 8))
                    if (element[2] == 0x10 && element[3] == 1) memcpy(message_id, element + 8, 2);
                continue;
            }
            if (file < 0) {
                snprintf(name, sizeof name, "%s/%d-%u.dcm", folder, getpid(), number++);
                file = open(name, O_WRONLY | O_CREAT | O_EXCL, 0640);
            }
            write_all(file, content, size);
            if (!(item[5] & 2)) continue;
            if (fdatasync(file) || close(file) || fsync(directory)) exit(1);
            file = -1;
            succeed(peer, item[4], message_id);
        }
    }
}

/* Only what was waited for counts as CPU of its parent. */
static void reap(int signal) {
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) continue;
}

int main(int count, char **words) {
    if (count != 3) return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(atoi(words[1])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int on = 1, door = socket(AF_INET, SOCK_STREAM, 0);
    setsockopt(door, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(door, (struct sockaddr *)&address, sizeof address) || listen(door, 512)) return 1;
    struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_RESTART};
    sigaction(SIGCHLD, &reaping, NULL);
    for (;;) {
        int peer = accept(door, NULL, NULL);
        if (peer < 0) continue;
        setsockopt(peer, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        if (fork() == 0) {
            close(door);
            serve(peer, words[2]);
        }
        close(peer);
    }
}
