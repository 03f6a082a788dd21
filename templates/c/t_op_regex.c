/* Regular expressions, run in time linear in the text: all states of the automaton at once (K. Thompson, 1968).
 *
 * A program (torshc/ops/regex.py writes it) is its number of instructions, three integers for each, then ranges of code
 * points. The text is matched as a whole.
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
} machine;

/* Whether a program stays within itself. */
static int is_sound(const int64_t *code, int64_t length)
{
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

static int is_word(int32_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_';
}

static int is_in(const int64_t *range, int64_t ranges, int64_t c)
{
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
static int64_t facts_of(int32_t before, int32_t after)
{
    return (before < 0 ? AT_START : 0) | (after < 0 ? AT_END : 0) | (before < 0 || before == '\n' ? LINE_START : 0) |
           (after < 0 || after == '\n' ? LINE_END : 0) | (is_word(before) != is_word(after) ? WORD_EDGE : 0);
}

/* Puts a state and all that it leads to without a character into a list. */
static void put(machine *m, state_list *list, int64_t pc, int64_t facts)
{
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

static int matches(machine *m, state_list *list, const t_string *s)
{
    state_list *here = &list[0], *there = &list[1];
    int64_t at = 0, peek = 0;
    int32_t c = s->bytes ? t_decode(s, &peek) : -1;
    here->size = here->matched = 0;
    m->now++;
    put(m, here, 0, facts_of(-1, c));
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
    }
    return c < 0 && here->matched;
}

/* x, a program -> whether each element matches. */
int t_op_text_match(t_frame *f, const t_value *const *in, t_value *const *out, const int64_t *n)
{
    const int64_t *code = (const int64_t *)in[1]->data, count = t_count(in[0]);
    machine m = {code, code + 1, 0, 0, NULL};
    state_list list[2];
    int64_t *memory;
    int status;
    (void)n;
    if (!is_sound(code, t_count(in[1])))
        return t_fail(TORSHC_E_VALUE, "operand 1 is no program of a regular expression");
    if ((status = t_check_text(in[0], 0)) || (status = t_make(f, out[0], T_BOOL, in[0]->ndim, in[0]->shape)))
        return status;
    m.steps = code[0];
    if (!(memory = t_scratch(f, 5 * m.steps * (int64_t)sizeof *memory)))
        return TORSHC_E_MEMORY;
    memset(memory, 0, 5 * (size_t)m.steps * sizeof *memory);
    m.stack = memory;
    for (int k = 0; k < 2; k++) {
        list[k].pc = memory + (2 * k + 1) * m.steps;
        list[k].stamp = memory + (2 * k + 2) * m.steps;
    }
    for (int64_t i = 0; i < count; i++)
        ((uint8_t *)out[0]->data)[i] = (uint8_t)matches(&m, list, &t_strings(in[0])[i]);
    t_scratch_free(memory);
    return TORSHC_OK;
}
