// A stand-in of NCCL: exchanges between processes or threads whose cards are emulated, through files in a folder of TMPDIR.
// Functions and numbers are those of NCCL's interface. Work that is put into a stream waits there for the other ranks without
// holding up who asks for it, and is done late, as on cards.
//
// Failures on demand, read at each call: T_EMULATE_NCCL_ERROR=6 (what ncclCommGetAsyncError says), T_EMULATE_NCCL_HANG=1
// (AllReduce and Send do not return until the communicator is aborted), T_EMULATE_NCCL_VERSION=22000.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#define API extern "C" __attribute__((visibility("default")))

namespace {

enum { success = 0, system_error = 2, invalid_argument = 4, invalid_usage = 5 };
enum { int32 = 2, int64 = 4, float16 = 6, float32 = 7, float64 = 8 };

struct Comm;
struct Stream {  // what every emulated stream begins with
    void (*enqueue)(Stream *, bool (*go)(void *), void *context);
};

struct Id {
    char folder[128];
};

// An exchange that was put into a stream; a graph may run it many times.
struct Exchange {
    Comm *comm;
    char kind;  // 'r' AllReduce, 'g' AllGather, 's' ReduceScatter, '>' Send, '<' Recv
    const char *from;
    char *to;
    size_t bytes;  // of what a rank gives; of 's', of a part
    int type, peer;
    bool begun = false;
    uint64_t number = 0;
};

struct Comm {
    std::string folder;
    int count, rank;
    Comm(const char *folder, int count, int rank) : folder(folder), count(count), rank(rank) {}
    std::atomic<bool> aborted{false};
    uint64_t together = 0;
    std::map<int, uint64_t> sent, received;
    std::vector<std::unique_ptr<Exchange>> exchanges;
};

int setting(const char *name) {
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

std::string name_of(const Comm *c, const char *kind, int from, int to, uint64_t number) {
    char text[96];
    snprintf(text, sizeof text, "/%s.%d.%d.%llu", kind, from, to, (unsigned long long)number);
    return c->folder + text;
}

void write_file(const std::string &path, const void *data, size_t bytes) {
    const std::string beside = path + ".new";
    FILE *file = fopen(beside.c_str(), "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file)) abort();
    rename(beside.c_str(), path.c_str());
}

bool is_there(const std::string &path) { return !access(path.c_str(), F_OK); }

void read_file(const std::string &path, void *data, size_t bytes) {
    FILE *file = fopen(path.c_str(), "rb");
    if (!file || fread(data, 1, bytes, file) != bytes || fgetc(file) != EOF) {
        fprintf(stderr, "emulator: NCCL: ranks exchange tensors of different sizes\n");
        abort();
    }
    fclose(file);
}

template <class T>
void add(char *total, const char *more, size_t bytes) {
    for (size_t i = 0; i < bytes; i += sizeof(T)) {
        T a, b;
        memcpy(&a, total + i, sizeof a);
        memcpy(&b, more + i, sizeof b);
        a += b;
        memcpy(total + i, &a, sizeof a);
    }
}

void add(int type, char *total, const char *more, size_t bytes) {
    if (type == float32) add<float>(total, more, bytes);
    else if (type == float64) add<double>(total, more, bytes);
    else if (type == float16) add<_Float16>(total, more, bytes);
    else if (type == int64) add<uint64_t>(total, more, bytes);
    else add<uint32_t>(total, more, bytes);
}

bool go_together(Exchange *e) {
    Comm *c = e->comm;
    const size_t given = e->kind == 's' ? e->bytes * (size_t)c->count : e->bytes;
    if (!e->begun) {
        e->number = c->together++;
        write_file(name_of(c, "all", c->rank, 0, e->number), e->from, given);
        e->begun = true;
    }
    for (int r = 0; r < c->count; ++r)
        if (!is_there(name_of(c, "all", r, 0, e->number))) return false;
    std::vector<char> part(given), total(given);
    for (int r = 0; r < c->count; ++r) {
        read_file(name_of(c, "all", r, 0, e->number), part.data(), given);
        if (e->kind == 'g') memcpy(e->to + (size_t)r * e->bytes, part.data(), e->bytes);
        else if (r) add(e->type, total.data(), part.data(), given);
        else total = part;
    }
    if (e->kind == 'r') memcpy(e->to, total.data(), e->bytes);
    if (e->kind == 's') memcpy(e->to, total.data() + (size_t)c->rank * e->bytes, e->bytes);
    // All have given this, so all have read what came before.
    if (e->number) unlink(name_of(c, "all", c->rank, 0, e->number - 1).c_str());
    return true;
}

bool go_between(Exchange *e) {
    Comm *c = e->comm;
    const bool sends = e->kind == '>';
    if (!e->begun) e->number = (sends ? c->sent : c->received)[e->peer]++;
    const std::string path =
        sends ? name_of(c, "one", c->rank, e->peer, e->number) : name_of(c, "one", e->peer, c->rank, e->number);
    if (sends) {
        if (!e->begun) write_file(path, e->from, e->bytes);
        e->begun = true;
        return !is_there(path);  // the other has it
    }
    e->begun = true;
    if (!is_there(path)) return false;
    read_file(path, e->to, e->bytes);
    unlink(path.c_str());
    return true;
}

bool go(void *context) {
    Exchange *e = (Exchange *)context;
    const bool done = e->comm->aborted || (e->kind == '>' || e->kind == '<' ? go_between(e) : go_together(e));
    if (done) e->begun = false;
    return done;
}

int put(Comm *c, void *stream, Exchange made) {
    if ((uintptr_t)stream < 4096) return invalid_argument;  // CUDA's own streams have no place to put work
    if (setting("T_EMULATE_NCCL_HANG") && (made.kind == 'r' || made.kind == '>')) {
        while (!c->aborted) usleep(1000);
        return system_error;
    }
    made.comm = c;
    c->exchanges.push_back(std::make_unique<Exchange>(made));
    ((Stream *)stream)->enqueue((Stream *)stream, go, c->exchanges.back().get());
    return success;
}

size_t size_of(int type) { return type == int64 || type == float64 ? 8 : type == int32 || type == float32 ? 4 : type == float16 ? 2 : 1; }

}  // namespace

API int ncclGetVersion(int *version) {
    const int told = setting("T_EMULATE_NCCL_VERSION");
    *version = told ? told : 22703;
    return success;
}

API int ncclGetUniqueId(Id *id) {
    memset(id, 0, sizeof *id);
    const char *place = getenv("TMPDIR");
    snprintf(id->folder, sizeof id->folder, "%s/t_nccl_XXXXXX", place && *place ? place : "/tmp");
    return mkdtemp(id->folder) ? success : system_error;
}

API int ncclCommInitRank(Comm **comm, int count, Id id, int rank) {
    if (count < 1 || rank < 0 || rank >= count || !is_there(id.folder)) return invalid_argument;
    Comm *c = new Comm(id.folder, count, rank);
    write_file(name_of(c, "here", rank, 0, 0), "", 0);
    for (int r = 0; r < count; ++r)
        while (!is_there(name_of(c, "here", r, 0, 0))) usleep(1000);
    *comm = c;
    return success;
}

// Its memory and its files stay, as streams and other ranks may use them. With T_EMULATE_NCCL_STUCK it waits for recorded
// runs that wait for it, as NCCL may.
API int ncclCommAbort(Comm *c) {
    while (setting("T_EMULATE_NCCL_STUCK")) usleep(1000);
    c->aborted = true;
    return success;
}

// The last one takes the folder away.
API int ncclCommDestroy(Comm *c) {
    c->aborted = true;
    write_file(name_of(c, "gone", c->rank, 0, 0), "", 0);
    for (int r = 0; r < c->count; ++r)  // others may not have seen yet that this one began, or read what it gave last
        if (!is_there(name_of(c, "gone", r, 0, 0))) return success;
    for (int r = 0; r < c->count; ++r) {
        for (const char *what : {"here", "gone"}) unlink(name_of(c, what, r, 0, 0).c_str());
        if (c->together) unlink(name_of(c, "all", r, 0, c->together - 1).c_str());
    }
    rmdir(c->folder.c_str());
    return success;
}

API int ncclCommGetAsyncError(Comm *, int *result) {
    *result = setting("T_EMULATE_NCCL_ERROR");
    return success;
}
API int ncclCommCount(const Comm *c, int *count) { return *count = c->count, success; }
API int ncclCommUserRank(const Comm *c, int *rank) { return *rank = c->rank, success; }
API int ncclCommCuDevice(const Comm *c, int *device) { return *device = c->rank, success; }  // cards have ranks' numbers
API const char *ncclGetErrorString(int result) {
    return result == 6 ? "remote process exited or there was a network error" : result ? "an emulated failure" : "no error";
}

API int ncclAllReduce(const void *from, void *to, size_t count, int type, int, Comm *c, void *stream) {
    return put(c, stream, {c, 'r', (const char *)from, (char *)to, count * size_of(type), type, -1});
}
API int ncclAllGather(const void *from, void *to, size_t count, int type, Comm *c, void *stream) {
    return put(c, stream, {c, 'g', (const char *)from, (char *)to, count * size_of(type), type, -1});
}
API int ncclReduceScatter(const void *from, void *to, size_t count, int type, int, Comm *c, void *stream) {
    return put(c, stream, {c, 's', (const char *)from, (char *)to, count * size_of(type), type, -1});
}
API int ncclSend(const void *data, size_t count, int type, int peer, Comm *c, void *stream) {
    return put(c, stream, {c, '>', (const char *)data, nullptr, count * size_of(type), type, peer});
}
API int ncclRecv(void *data, size_t count, int type, int peer, Comm *c, void *stream) {
    return put(c, stream, {c, '<', nullptr, (char *)data, count * size_of(type), type, peer});
}
