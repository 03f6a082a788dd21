; Arithmetic, and elements as they lie in memory. Nothing traps or is undefined; NaN and signed zeros follow NumPy.

; ---- floats ----

define internal $X @t_neg_of_floats$S($X %x) alwaysinline {
  %r = fneg $X %x
  ret $X %r
}

; NaN stays.
define internal $X @t_sign_of_floats$S($X %x) alwaysinline {
  %above = fcmp ogt $X %x, ${0.0}
  %below = fcmp olt $X %x, ${0.0}
  %nan = fcmp uno $X %x, %x
  %up = select $M %above, $X ${1.0}, $X ${0.0}
  %signed = select $M %below, $X ${-1.0}, $X %up
  %r = select $M %nan, $X %x, $X %signed
  ret $X %r
}

; The first of two equal ones; NaN where either is.
define internal $X @t_max_of_floats$S($X %a, $X %b) alwaysinline {
  %fits = fcmp oge $X %a, %b
  %nan = fcmp uno $X %a, %a
  %first = or $M %fits, %nan
  %r = select $M %first, $X %a, $X %b
  ret $X %r
}

define internal $X @t_min_of_floats$S($X %a, $X %b) alwaysinline {
  %fits = fcmp ole $X %a, %b
  %nan = fcmp uno $X %a, %a
  %first = or $M %fits, %nan
  %r = select $M %first, $X %a, $X %b
  ret $X %r
}

define internal $M @t_isnan$S($X %x) alwaysinline {
  %r = fcmp uno $X %x, %x
  ret $M %r
}

define internal $M @t_isinf$S($X %x) alwaysinline {
  %a = call $X @llvm.fabs($X %x)
  %r = fcmp oeq $X %a, ${inf}
  ret $M %r
}

; Whether Python's division goes one down from what is cut off: the rest is not 0, and of another sign than b.
define internal $M @t_goes_down_of_floats$S($X %rest, $X %b) alwaysinline {
  %rest.negative = fcmp olt $X %rest, ${0.0}
  %b.negative = fcmp olt $X %b, ${0.0}
  %some = fcmp une $X %rest, ${0.0}
  %differ = xor $M %rest.negative, %b.negative
  %r = and $M %some, %differ
  ret $M %r
}

define internal $X @t_mod_of_floats$S($X %a, $X %b) alwaysinline {
  %rest = frem $X %a, %b
  %down = call $M @t_goes_down_of_floats$S($X %rest, $X %b)
  %other = fadd contract $X %rest, %b
  %r = select $M %down, $X %other, $X %rest
  %none = fcmp oeq $X %r, ${0.0}
  %zero = call $X @llvm.copysign($X ${0.0}, $X %b)
  %y = select $M %none, $X %zero, $X %r
  ret $X %y
}

; (a - mod(a, b)) / b to the nearest whole number, as that quotient is rounded; by 0 it is a / b.
define internal $X @t_floordiv_of_floats$S($X %a, $X %b) alwaysinline {
  %rest = frem $X %a, %b
  %down = call $M @t_goes_down_of_floats$S($X %rest, $X %b)
  %part = fsub contract $X %a, %rest
  %cut = fdiv contract $X %part, %b
  %less = fsub contract $X %cut, ${1.0}
  %q = select $M %down, $X %less, $X %cut
  %floor = call $X @llvm.floor($X %q)
  %fraction = fsub contract $X %q, %floor
  %above = fcmp ogt $X %fraction, ${0.5}
  %next = fadd contract $X %floor, ${1.0}
  %nearest = select $M %above, $X %next, $X %floor
  %whole = fdiv contract $X %a, %b
  %zero = call $X @llvm.copysign($X %q, $X %whole)
  %some = fcmp une $X %q, ${0.0}
  %y = select $M %some, $X %nearest, $X %zero
  %by.zero = fcmp oeq $X %b, ${0.0}
  %z = select $M %by.zero, $X %whole, $X %y
  ret $X %z
}

; ---- integers ----

define internal $X @t_neg_of_integers$S($X %x) alwaysinline {
  %r = sub $X ${0}, %x
  ret $X %r
}

define internal $X @t_not$S($X %x) alwaysinline {
  %r = xor $X %x, ${-1}
  ret $X %r
}

define internal $X @t_bitnot$S($X %x) alwaysinline {
  %r = xor $X %x, ${-1}
  ret $X %r
}

define internal $X @t_abs_of_signed$S($X %x) alwaysinline {
  %r = call $X @llvm.abs($X %x, i1 false)
  ret $X %r
}

define internal $X @t_abs_of_unsigned$S($X %x) alwaysinline {
  ret $X %x
}

define internal $X @t_sign_of_signed$S($X %x) alwaysinline {
  %low = call $X @llvm.smax($X %x, $X ${-1})
  %r = call $X @llvm.smin($X %low, $X ${1})
  ret $X %r
}

define internal $X @t_sign_of_unsigned$S($X %x) alwaysinline {
  %r = call $X @llvm.umin($X %x, $X ${1})
  ret $X %r
}

; Shifted by the width or more, or by a negative amount, nothing is left but the sign.
define internal $X @t_shl$S($X %a, $X %by) alwaysinline {
  %within = icmp ult $X %by, ${bits}
  %places = select $M %within, $X %by, $X ${0}
  %moved = shl $X %a, %places
  %r = select $M %within, $X %moved, $X ${0}
  ret $X %r
}

define internal $X @t_shr_of_unsigned$S($X %a, $X %by) alwaysinline {
  %within = icmp ult $X %by, ${bits}
  %places = select $M %within, $X %by, $X ${0}
  %moved = lshr $X %a, %places
  %r = select $M %within, $X %moved, $X ${0}
  ret $X %r
}

define internal $X @t_shr_of_signed$S($X %a, $X %by) alwaysinline {
  %within = icmp ult $X %by, ${bits}
  %last = sub $X ${bits}, ${1}
  %places = select $M %within, $X %by, $X %last
  %r = ashr $X %a, %places
  ret $X %r
}

; b, or 1 where a division by b would trap: by 0, and by -1, where a may be the least number.
define internal $X @t_divisor_of_signed$S($X %b) alwaysinline {
  %none = icmp eq $X %b, ${0}
  %turned = icmp eq $X %b, ${-1}
  %traps = or $M %none, %turned
  %r = select $M %traps, $X ${1}, $X %b
  ret $X %r
}

define internal $X @t_divisor_of_unsigned$S($X %b) alwaysinline {
  %none = icmp eq $X %b, ${0}
  %r = select $M %none, $X ${1}, $X %b
  ret $X %r
}

; By 0 it is 0, as are all remainders, and the least number by -1 is itself.
define internal $X @t_div_of_signed$S($X %a, $X %b) alwaysinline {
  %divisor = call $X @t_divisor_of_signed$S($X %b)
  %whole = sdiv $X %a, %divisor
  %less = sub $X ${0}, %a
  %turned = icmp eq $X %b, ${-1}
  %q = select $M %turned, $X %less, $X %whole
  %none = icmp eq $X %b, ${0}
  %r = select $M %none, $X ${0}, $X %q
  ret $X %r
}

define internal $X @t_div_of_unsigned$S($X %a, $X %b) alwaysinline {
  %divisor = call $X @t_divisor_of_unsigned$S($X %b)
  %q = udiv $X %a, %divisor
  %none = icmp eq $X %b, ${0}
  %r = select $M %none, $X ${0}, $X %q
  ret $X %r
}

define internal $X @t_fmod_of_signed$S($X %a, $X %b) alwaysinline {
  %divisor = call $X @t_divisor_of_signed$S($X %b)
  %r = srem $X %a, %divisor
  ret $X %r
}

define internal $X @t_fmod_of_unsigned$S($X %a, $X %b) alwaysinline {
  %divisor = call $X @t_divisor_of_unsigned$S($X %b)
  %r = urem $X %a, %divisor
  ret $X %r
}

; Whether Python's division goes one down from what is cut off, as of floats.
define internal $M @t_goes_down_of_signed$S($X %rest, $X %b) alwaysinline {
  %both = xor $X %rest, %b
  %differ = icmp slt $X %both, ${0}
  %some = icmp ne $X %rest, ${0}
  %r = and $M %some, %differ
  ret $M %r
}

define internal $X @t_mod_of_signed$S($X %a, $X %b) alwaysinline {
  %rest = call $X @t_fmod_of_signed$S($X %a, $X %b)
  %down = call $M @t_goes_down_of_signed$S($X %rest, $X %b)
  %more = select $M %down, $X %b, $X ${0}
  %r = add $X %rest, %more
  ret $X %r
}

define internal $X @t_mod_of_unsigned$S($X %a, $X %b) alwaysinline {
  %r = call $X @t_fmod_of_unsigned$S($X %a, $X %b)
  ret $X %r
}

define internal $X @t_floordiv_of_signed$S($X %a, $X %b) alwaysinline {
  %q = call $X @t_div_of_signed$S($X %a, $X %b)
  %rest = call $X @t_fmod_of_signed$S($X %a, $X %b)
  %down = call $M @t_goes_down_of_signed$S($X %rest, $X %b)
  %one = zext $M %down to $X
  %r = sub $X %q, %one
  ret $X %r
}

define internal $X @t_floordiv_of_unsigned$S($X %a, $X %b) alwaysinline {
  %r = call $X @t_div_of_unsigned$S($X %a, $X %b)
  ret $X %r
}

; By squares, a bit of n at a time.
define internal $X @t_pow_of_unsigned$S($X %a, $X %n) alwaysinline {
entry:
  br label %round
round:
  %k = phi i64 [ 0, %entry ], [ %k.next, %round ]
  %left = phi $X [ %n, %entry ], [ %left.next, %round ]
  %square = phi $X [ %a, %entry ], [ %square.next, %round ]
  %total = phi $X [ ${1}, %entry ], [ %total.next, %round ]
  %last = and $X %left, ${1}
  %odd = icmp ne $X %last, ${0}
  %factor = select $M %odd, $X %square, $X ${1}
  %total.next = mul $X %total, %factor
  %square.next = mul $X %square, %square
  %left.next = lshr $X %left, ${1}
  %k.next = add i64 %k, 1
  %more = icmp slt i64 %k.next, 64
  br i1 %more, label %round, label %end
end:
  ret $X %total.next
}

; To a negative power it is 0, but for 1 and -1, for which the power's last bit decides.
define internal $X @t_pow_of_signed$S($X %a, $X %n) alwaysinline {
  %negative = icmp slt $X %n, ${0}
  %last = and $X %n, ${1}
  %n.used = select $M %negative, $X %last, $X %n
  %power = call $X @t_pow_of_unsigned$S($X %a, $X %n.used)
  %size = call $X @llvm.abs($X %a, i1 false)
  %other = icmp ne $X %size, ${1}
  %none = and $M %negative, %other
  %r = select $M %none, $X ${0}, $X %power
  ret $X %r
}

; ---- order: bits that compare as signed integers as their elements do; NaN comes last, and zeros are equal ----

define internal $I @t_order_of_floats$S($X %x) alwaysinline {
  %none = fcmp oeq $X %x, ${0.0}
  %plain = select $M %none, $X ${0.0}, $X %x
  %bits = bitcast $X %plain to $I
  %most = lshr $I ${-1}, ${1}
  %turned = xor $I %bits, %most
  %negative = icmp slt $I %bits, ${0}
  %order = select $M %negative, $I %turned, $I %bits
  %nan = fcmp uno $X %x, %x
  %r = select $M %nan, $I %most, $I %order
  ret $I %r
}

define internal $I @t_order_u64$S($X %x) alwaysinline {
  %r = xor $X %x, ${-0x8000000000000000}
  ret $I %r
}

; ---- elements as they lie in memory ----

define internal $M @t_decode_bool$S($i8 %x) alwaysinline {
  %r = icmp ne $i8 %x, zeroinitializer
  ret $M %r
}

define internal $i8 @t_encode_bool$S($M %x) alwaysinline {
  %r = zext $M %x to $i8
  ret $i8 %r
}
