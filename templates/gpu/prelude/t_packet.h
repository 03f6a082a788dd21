/* Packets: neighbours in memory that one thread reads or writes at once, 16 bytes at a time. */
#ifndef T_PACKET_H
#define T_PACKET_H

/* Address space of a thread's own variables. */
#ifndef T_LOCAL
#define T_LOCAL
#endif

template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) t_packet {
    T at[N];
};

/* Packets are stored as a whole: compilers take them apart, and do not always find that they may be stored so. */
#ifdef T_STORE_WORDS
template <typename T, int N>
T_FN void t_store_packet(t_packet<T, N> *to, const t_packet<T, N> &packet) {
    if constexpr (sizeof(T) == 4) {
        for (int i = 0; i < N; i += 4) {
            uint32_t words[4];
            memcpy(words, &packet.at[i], sizeof words);
            T_STORE_WORDS((uint32_t *)to + i, words);
        }
    } else if constexpr (sizeof(T) == 2) {
        uint32_t words[N / 2];
        memcpy(words, &packet, sizeof words);
        T_STORE_WORDS((uint32_t *)to, words);
    } else {
        *to = packet;
    }
}
#else
template <typename T, int N>
T_FN void t_store_packet(T_GLOBAL t_packet<T, N> *to, const T_LOCAL t_packet<T, N> &packet) {
    *to = packet;
}
#endif

/* Reads from any memory of the device; writes to buffers alone. */
#define T_DEF_PACKET(N) \
    template <typename T> \
    T_FN void t_read##N(T_LOCAL T (&x)[N], const T_GLOBAL T *p) { \
        const t_packet<T, N> read = *(const T_GLOBAL t_packet<T, N> *)p; \
        for (int i = 0; i < N; i++) x[i] = read.at[i]; \
    } \
    template <typename T> \
    T_FN void t_write##N(T_GLOBAL T *p, const T_LOCAL T (&x)[N]) { \
        t_packet<T, N> written; \
        for (int i = 0; i < N; i++) written.at[i] = x[i]; \
        t_store_packet((T_GLOBAL t_packet<T, N> *)p, written); \
    }
T_DEF_PACKET(4)
T_DEF_PACKET(8)
#undef T_DEF_PACKET

#endif
