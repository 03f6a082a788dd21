/* Runs whose form the card chooses: what t_choice.c, which knows the model, and t_choose.cu, in the device layer, share. */
#ifndef T_CHOICE_H
#define T_CHOICE_H

#include "t_device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Forms of a chain, those that the card tries and the one that is left, and inputs that it compares for them. */
enum { T_CHAIN = 32, T_CASES = 5, T_COMPARED = 16 };

/* Bytes in the card's memory, aligned as kernels want them, that form `place` of the chain takes to be the bytes of
 * `pattern` over and over again. */
typedef struct {
    const unsigned char *at;
    uint64_t bytes, pattern;
    int32_t place;
} t_compared;

/* The forms that sizes fit, in order. Bit k of `missed` is set where the processor knows that form k of them is not for
 * the values of inputs; of the others, the first that holds is taken, and the last always does. */
typedef struct {
    int32_t forms, cases, compared;
    uint32_t missed;
    int32_t form[T_CHAIN], place[T_CASES];
    t_compared of[T_COMPARED];
} t_chain;

/* What the card counts: how many runs took each form of the library, then how many each was for but in its values. All
 * of it is zeros at first. */
typedef struct {
    uint32_t arrived, failed; /* of the run in progress: blocks, and forms as in `missed` */
    uint64_t runs[];
} t_counts;

/* Whether the driver can, and steps are recorded at all. */
int t_choose_open(t_device *d);

/* In place of the steps that t_device_begin() records: what chooses a form, and then, after each t_choose_case(), the
 * steps of that case. Begin gives T_UNCHOSEN where nothing is recorded; after a failure t_device_end() gives T_AGAIN. */
enum { T_UNCHOSEN = -2 };
int t_choose_begin(t_device *d, const t_chain *chain, t_counts *counts, int32_t forms);
int t_choose_case(t_device *d, int32_t k);

/* Whether a choice can be recorded, as far as is known. */
int t_chooses(const t_device *d);

#ifdef __cplusplus
}
#endif

#endif
