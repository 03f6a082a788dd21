/* Regular expressions: all states of the automaton at once (K. Thompson, 1968), in time linear in the text that is looked
 * at from one place.
 *
 * A program (torshc/ops/text/regex.py writes it) is its number of instructions, three integers for each, then ranges of code
 * points.
 */
#include "t_text.h"

enum { MATCH, SET, SPLIT, ASSERT }; /* (SET, offset of ranges, number); (SPLIT, a, b); (ASSERT, what, next) */

/* What an ASSERT asks for, as bits that are all wanted, and those that are not, shifted by 8. */
enum { AT_START = 1, AT_END = 2, LINE_START = 4, LINE_END = 8, WORD_EDGE = 16 };

typedef struct {
    int64_t *pc, *stamp; /* states, and for each instruction when it was last put here */
    int64_t size;
    int matched;
} state_list;

typedef struct {
    const int64_t *code, *step; /* the whole program; its instructions */
    int64_t steps, now;
    int64_t *stack;
    state_list list[2];
} machine;

/* Whether a program stays within itself. */
static int is_sound(const int64_t *code, int64_t length) {
    const int64_t steps = length > 0 ? code[0] : 0;
    if (steps < 1 || steps > (length - 1) / 3)
        return 0;
    for (int64_t k = 0; k < steps; k++) {
        const int64_t *i = code + 1 + 3 * k;
        if (i[0] == SET && (i[1] < 1 || i[2] < 0 || i[1] > length || i[2] > (length - i[1]) / 2 || k + 1 >= steps))
            return 0;
        if (i[0] == SPLIT && (i[1] < 0 || i[1] >= steps || i[2] < 0 || i[2] >= steps))
            return 0;
        if (i[0] == ASSERT && (i[2] < 0 || i[2] >= steps))
            return 0;
        if (i[0] < MATCH || i[0] > ASSERT)
            return 0;
    }
    return 1;
}

static int is_word(int32_t c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static int is_in(const int64_t *range, int64_t ranges, int64_t c) {
    int64_t low = 0, high = ranges;
    while (low < high) { /* the first range that does not end before c */
        const int64_t mid = low + (high - low) / 2;
        if (range[2 * mid + 1] < c)
            low = mid + 1;
        else
            high = mid;
    }
    return low < ranges && range[2 * low] <= c;
}

/* What is true between two code points, -1 being none. */
static int64_t facts_of(int32_t before, int32_t after) {
    return (before < 0 ? AT_START : 0) | (after < 0 ? AT_END : 0) | (before < 0 || before == '\n' ? LINE_START : 0) |
           (after < 0 || after == '\n' ? LINE_END : 0) | (is_word(before) != is_word(after) ? WORD_EDGE : 0);
}

/* Puts a state and all that it leads to without a character into a list. */
static void put(machine *m, state_list *list, int64_t pc, int64_t facts) {
    int64_t depth = 0;
    if (list->stamp[pc] == m->now)
        return;
    list->stamp[pc] = m->now;
    m->stack[depth++] = pc;
    while (depth) {
        const int64_t at = m->stack[--depth], *i = m->step + 3 * at;
        int64_t next[2] = {-1, -1};
        if (i[0] == MATCH)
            list->matched = 1;
        else if (i[0] == SET)
            list->pc[list->size++] = at;
        else if (i[0] == SPLIT)
            next[0] = i[2], next[1] = i[1];
        else if ((i[1] & 0xff & ~facts) == 0 && (i[1] >> 8 & facts) == 0)
            next[0] = i[2];
        for (int k = 0; k < 2; k++) /* an instruction is on the stack once at most: there is room for all */
            if (next[k] >= 0 && list->stamp[next[k]] != m->now) {
                list->stamp[next[k]] = m->now;
                m->stack[depth++] = next[k];
            }
    }
}

/* Where the longest match that begins at `at`, behind a code point or -1, ends; -1 when there is none. */
static int64_t longest(machine *m, const t_string *s, int64_t at, int32_t before) {
    state_list *here = &m->list[0], *there = &m->list[1];
    int64_t peek = at, end;
    int32_t c = at < s->bytes ? t_decode(s, &peek) : -1;
    here->size = here->matched = 0;
    m->now++;
    put(m, here, 0, facts_of(before, c));
    end = here->matched ? at : -1;
    while (c >= 0 && here->size) {
        state_list *const swap = here;
        int32_t after;
        at = peek;
        after = at < s->bytes ? t_decode(s, &peek) : -1;
        there->size = there->matched = 0;
        m->now++;
        for (int64_t k = 0; k < here->size; k++) {
            const int64_t *i = m->step + 3 * here->pc[k];
            if (is_in(m->code + i[1], i[2], c))
                put(m, there, here->pc[k] + 1, facts_of(c, after));
        }
        here = there;
        there = swap;
        c = after;
        end = here->matched ? at : end;
    }
    return end;
}

/* Makes a machine of a program; its stack is what t_scratch_free gives back. */
static int prepare(t_frame *f, const t_value *program, machine *m) {
    const int64_t *code = (const int64_t *)program->data;
    int64_t *memory;
    if (!is_sound(code, t_count(program)))
        return t_fail(TORSHC_E_VALUE, "operand 1 is not a program of a regular expression");
    *m = (machine){.code = code, .step = code + 1, .steps = code[0]};
    if (!(memory = t_scratch(f, 5 * m->steps * (int64_t)sizeof *memory)))
        return TORSHC_E_MEMORY;
    memset(memory, 0, 5 * (size_t)m->steps * sizeof *memory);
    m->stack = memory;
    for (int k = 0; k < 2; k++) {
        m->list[k].pc = memory + (2 * k + 1) * m->steps;
        m->list[k].stamp = memory + (2 * k + 2) * m->steps;
    }
    return TORSHC_OK;
}

/* x, a program -> whether each element matches as a whole. */
int t_op_text_match(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const int64_t count = t_count(in[0]);
    machine m;
    int status;
    (void)n;
    if ((status = t_check_text(in[0], 0)) || (status = t_make(f, out[0], T_BOOL, in[0]->ndim, in[0]->shape)) ||
        (status = prepare(f, in[1], &m)))
        return status;
    for (int64_t i = 0; i < count; i++) {
        const t_string *s = &t_strings(in[0])[i];
        ((uint8_t *)out[0]->data)[i] = longest(&m, s, 0, -1) == s->bytes;
    }
    t_scratch_free(m.stack);
    return TORSHC_OK;
}

/* The next match of at least that many code points from *at on, behind `*before`, or 0 when there is none. */
static int next_token(machine *m, const t_string *s, int64_t least, int64_t *at, int32_t *before, t_string *token) {
    while (*at < s->bytes) {
        const int64_t begin = *at, end = longest(m, s, begin, *before);
        int32_t last = *before;
        int64_t length = 0, behind = begin;
        for (; behind < end; length++)
            last = t_decode(s, &behind);
        if (length && length >= least) {
            *token = (t_string){s->text + begin, end - begin};
            *at = end;
            *before = last;
            return 1;
        }
        *before = t_decode(s, at);
    }
    return 0;
}

/* x[...], a program, the padding and the marks of begin and end -> what matches in each element, its longest matches from
 * the left, [..., most]. n: least code points of one; 1 for marks around them. */
int t_op_text_tokens(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n) {
    const t_value *x = in[0];
    const t_string *around = t_strings(in[2]);
    const int64_t count = t_count(x);
    int64_t shape[T_VALUE_RANK + 1], most = 0;
    t_string token;
    machine m;
    int status;
    if ((status = t_check_text(x, 0)) || (status = t_check_text(in[2], 2)) || (status = prepare(f, in[1], &m)))
        return status;
    for (int64_t i = 0; i < count; i++) {
        int64_t at = 0, tokens = 0;
        int32_t before = -1;
        while (next_token(&m, &t_strings(x)[i], n[0], &at, &before, &token))
            tokens++;
        most = tokens > most ? tokens : most;
    }
    most += most && n[1] ? 2 : 0;
    for (int32_t d = 0; d < x->ndim; d++)
        shape[d] = x->shape[d];
    shape[x->ndim] = most;
    status = x->ndim == T_VALUE_RANK ? t_fail(TORSHC_E_RANK, "Tokenizer of %d dimensions", (int)x->ndim)
                                     : t_make(f, out[0], T_STRING, x->ndim + 1, shape);
    for (int64_t i = 0; !status && most && i < count; i++) {
        t_string *to = t_strings(out[0]) + i * most, *const stop = to + most;
        int64_t at = 0;
        int32_t before = -1;
        if (n[1])
            *to++ = around[1];
        while (next_token(&m, &t_strings(x)[i], n[0], &at, &before, &token))
            *to++ = token;
        if (n[1])
            *to++ = around[2];
        while (to < stop)
            *to++ = around[0];
    }
    t_scratch_free(m.stack);
    return status;
}
