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

template <typename T>
T_FN void t_read4(T_LOCAL T (&x)[4], const T_GLOBAL T *p) {
    const t_packet<T, 4> read = *(const T_GLOBAL t_packet<T, 4> *)p;
    for (int i = 0; i < 4; i++) x[i] = read.at[i];
}

template <typename T>
T_FN void t_write4(T_GLOBAL T *p, const T_LOCAL T (&x)[4]) {
    t_packet<T, 4> written;
    for (int i = 0; i < 4; i++) written.at[i] = x[i];
    *(T_GLOBAL t_packet<T, 4> *)p = written;
}

#endif
