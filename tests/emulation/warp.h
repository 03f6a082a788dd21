// Shuffles and votes of a warp, for both emulations.
#pragma once
#include <string.h>

#include "fibers.h"

namespace t_emulate {

template <class T> struct Shuffle {
    T value, result;
    int source;  // a lane
};

// A lane that is not there gives bytes of 0xff.
template <class T> void shuffle_all(void *const lanes[warp_threads]) {
    for (int i = 0; i < warp_threads; ++i) {
        Shuffle<T> *mine = (Shuffle<T> *)lanes[i];
        if (!mine) continue;
        const Shuffle<T> *other = (const Shuffle<T> *)lanes[mine->source];
        if (other) mine->result = other->value;
        else memset(&mine->result, 0xff, sizeof mine->result);
    }
}

// The value of another lane.
template <class T> T shuffle(unsigned mask, T value, int source) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move words of 4 or 8 bytes");
    Shuffle<T> mine = {value, value, source};
    meet_warp(mask, shuffle_all<T>, &mine);
    return mine.result;
}

struct Vote {
    bool yes;
    unsigned result;
};
inline void vote_all(void *const lanes[warp_threads]) {
    unsigned ballot = 0;
    for (int i = 0; i < warp_threads; ++i) ballot |= (unsigned)(lanes[i] && ((Vote *)lanes[i])->yes) << i;
    for (int i = 0; i < warp_threads; ++i)
        if (lanes[i]) ((Vote *)lanes[i])->result = ballot;
}
// Which lanes say yes.
inline unsigned vote(unsigned mask, bool yes) {
    Vote mine = {yes, 0};
    meet_warp(mask, vote_all, &mine);
    return mine.result;
}

}  // namespace t_emulate
