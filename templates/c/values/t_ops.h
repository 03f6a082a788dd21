/* The operators of the host, a line each. */
#ifndef T_OPS_H
#define T_OPS_H

#include "t_value.h"

/* t_op_text.c, t_op_number.c, t_op_regex.c */
t_operator t_op_text_case, t_op_text_concat, t_op_text_equal, t_op_text_find, t_op_text_from, t_op_text_keep;
t_operator t_op_text_match, t_op_text_pick, t_op_text_split, t_op_text_to, t_op_text_tokens;
t_operator t_op_text_view;

/* t_op_shape.c */
t_operator t_op_compress, t_op_non_max_suppression, t_op_nonzero, t_op_unique;

/* t_op_sequence.c */
t_operator t_op_concat_from_sequence, t_op_optional, t_op_optional_get, t_op_optional_has, t_op_sequence_at;
t_operator t_op_sequence_construct, t_op_sequence_erase, t_op_sequence_insert, t_op_sequence_length;
t_operator t_op_split_to_sequence;

/* t_op_matrix.c */
t_operator t_op_determinant, t_op_inverse;

/* t_op_ml.c */
t_operator t_op_couple, t_op_zip_map;

#endif
