; Functions of floats without branches; the fits of those of f32 and their errors are in c/prelude/t_math_exp.h.

; ---- exponentials ----

; Within limits; NaN stays.
define internal $X @t_clamp$S($X %x, $X %low, $X %high) alwaysinline {
  %under = fcmp olt $X %x, %low
  %y = select $M %under, $X %low, $X %x
  %over = fcmp ogt $X %y, %high
  %z = select $M %over, $X %high, $X %y
  ret $X %z
}

; 2^n for -126 <= n <= 127.
define internal $X @t_pow2$S($I %n) alwaysinline {
  %biased = add $I %n, ${127}
  %bits = shl $I %biased, ${23}
  %r = bitcast $I %bits to $X
  ret $X %r
}

; x / ln2 to the nearest integer, plus 1.5 * 2^23: its lowest bits are that integer.
define internal $X @t_exp_steps$S($X %x) alwaysinline {
  %t = call $X @llvm.fmuladd($X %x, $X ${1.44269504088896341}, $X ${12582912.0})
  ret $X %t
}

define internal $I @t_exp_power$S($X %steps) alwaysinline {
  %bits = bitcast $X %steps to $I
  %n = sub $I %bits, ${0x4B400000}
  ret $I %n
}

; r of x = n ln2 + r; the first part of ln2 has 10 bits, so that any multiple of it is exact.
define internal $X @t_exp_rest$S($X %x, $X %steps) alwaysinline {
  %k = fsub contract $X %steps, ${12582912.0}
  %most = call $X @llvm.fmuladd($X %k, $X ${-0.693359375}, $X %x)
  %r = call $X @llvm.fmuladd($X %k, $X ${2.12194440054690581e-4}, $X %most)
  ret $X %r
}

; e^r - 1 for |r| <= ln2 / 2, in two parts: r, and this.
define internal $X @t_exp_tail$S($X %r) alwaysinline {
  %z = fmul contract $X %r, %r
  %p01 = call $X @llvm.fmuladd($X %r, $X ${1.666652113e-1}, $X ${4.999999404e-1})
  %p23 = call $X @llvm.fmuladd($X %r, $X ${8.368703537e-3}, $X ${4.166828841e-2})
  %p24 = call $X @llvm.fmuladd($X %z, $X ${1.381893875e-3}, $X %p23)
  %p = call $X @llvm.fmuladd($X %p24, $X %z, $X %p01)
  %tail = fmul contract $X %p, %z
  ret $X %tail
}

; For x of -104.5 to 90; times 2^n in two halves, so that a result below the normal numbers is rounded once.
define internal $X @t_exp_within$S($X %x) alwaysinline {
  %steps = call $X @t_exp_steps$S($X %x)
  %n = call $I @t_exp_power$S($X %steps)
  %r = call $X @t_exp_rest$S($X %x, $X %steps)
  %tail = call $X @t_exp_tail$S($X %r)
  %less = fadd contract $X %r, %tail
  %p = fadd contract $X %less, ${1.0}
  %half = ashr $I %n, ${1}
  %other = sub $I %n, %half
  %a = call $X @t_pow2$S($I %half)
  %b = call $X @t_pow2$S($I %other)
  %pa = fmul contract $X %p, %a
  %y = fmul contract $X %pa, %b
  ret $X %y
}

define internal $X @t_exp_f32$S($X %x) alwaysinline {
  %within = call $X @t_clamp$S($X %x, $X ${-104.5}, $X ${90.0})
  %y = call $X @t_exp_within$S($X %within)
  ret $X %y
}

; s (e^r - 1) + (s - d), s = 2^n: e^x - d for what x was taken apart into.
define internal $X @t_exp_less$S($X %r, $I %n, $X %d) alwaysinline {
  %s = call $X @t_pow2$S($I %n)
  %tail = call $X @t_exp_tail$S($X %r)
  %e = fadd contract $X %r, %tail
  %rest = fsub contract $X %s, %d
  %y = call $X @llvm.fmuladd($X %s, $X %e, $X %rest)
  ret $X %y
}

; Half of it first, as 2^n overflows too early. The smallest arguments are their own result, which also keeps -0.
define internal $X @t_expm1_f32$S($X %x) alwaysinline {
  %within = call $X @t_clamp$S($X %x, $X ${-18.0}, $X ${89.0})
  %steps = call $X @t_exp_steps$S($X %within)
  %n = call $I @t_exp_power$S($X %steps)
  %r = call $X @t_exp_rest$S($X %within, $X %steps)
  %less = sub $I %n, ${1}
  %half = call $X @t_exp_less$S($X %r, $I %less, $X ${0.5})
  %y = fadd contract $X %half, %half
  %a = call $X @llvm.fabs($X %x)
  %tiny = fcmp olt $X %a, ${2.9802322387695312e-8}
  %z = select $M %tiny, $X %x, $X %y
  ret $X %z
}

; e / (e + 2), e = e^(2|x|) - 1
define internal $X @t_tanh_f32$S($X %x) alwaysinline {
  %a = call $X @llvm.fabs($X %x)
  %twice = fadd contract $X %a, %a
  %far = fcmp ogt $X %twice, ${20.0}
  %within = select $M %far, $X ${20.0}, $X %twice
  %steps = call $X @t_exp_steps$S($X %within)
  %n = call $I @t_exp_power$S($X %steps)
  %r = call $X @t_exp_rest$S($X %within, $X %steps)
  %e = call $X @t_exp_less$S($X %r, $I %n, $X ${1.0})
  %below = fadd contract $X %e, ${2.0}
  %size = fdiv contract $X %e, %below
  %y = call $X @llvm.copysign($X %size, $X %x)
  ret $X %y
}

; Of e^-|x|, which does not overflow: e / (e + 1) below 0, 1 / (e + 1) above.
define internal $X @t_sigmoid_of$S($X %x, $X %e) alwaysinline {
  %negative = fcmp olt $X %x, ${0.0}
  %above = select $M %negative, $X %e, $X ${1.0}
  %below = fadd contract $X %e, ${1.0}
  %y = fdiv contract $X %above, %below
  ret $X %y
}

define internal $X @t_sigmoid_f32$S($X %x) alwaysinline {
  %a = call $X @llvm.fabs($X %x)
  %less = fneg $X %a
  %far = fcmp olt $X %less, ${-104.5}
  %within = select $M %far, $X ${-104.5}, $X %less
  %e = call $X @t_exp_within$S($X %within)
  %y = call $X @t_sigmoid_of$S($X %x, $X %e)
  ret $X %y
}

define internal $X @t_sigmoid_f64$S($X %x) alwaysinline {
  %a = call $X @llvm.fabs($X %x)
  %less = fneg $X %a
  %e = call $X @llvm.exp($X %less)
  %y = call $X @t_sigmoid_of$S($X %x, $X %e)
  ret $X %y
}

; ---- logarithms: x = 2^k (1 + f), 1 + f in [sqrt(1/2), sqrt(2)] ----

; The bits of x, from sqrt(1/2) on; numbers below the normal ones are scaled.
define internal $I @t_log_bits$S($X %x) alwaysinline {
  %tiny = fcmp olt $X %x, ${1.1754943508222875e-38}
  %scaled = fmul contract $X %x, ${8388608.0}
  %normal = select $M %tiny, $X %scaled, $X %x
  %bits = bitcast $X %normal to $I
  %u = sub $I %bits, ${0x3F3504F3}
  ret $I %u
}

define internal $X @t_log_power$S($X %x, $I %u) alwaysinline {
  %tiny = fcmp olt $X %x, ${1.1754943508222875e-38}
  %scale = select $M %tiny, $I ${23}, $I ${0}
  %power = ashr $I %u, ${23}
  %n = sub $I %power, %scale
  %k = sitofp $I %n to $X
  ret $X %k
}

define internal $X @t_log_rest$S($I %u) alwaysinline {
  %fraction = and $I %u, ${0x7FFFFF}
  %bits = add $I %fraction, ${0x3F3504F3}
  %y = bitcast $I %bits to $X
  %f = fsub contract $X %y, ${1.0}
  ret $X %f
}

define internal $X @t_log_of$S($X %f, $X %k) alwaysinline {
  %z = fmul contract $X %f, %f
  %low = fmul contract $X %k, ${-2.12194440054690581e-4}
  %p01 = call $X @llvm.fmuladd($X %f, $X ${-2.500082552e-1}, $X ${3.333333135e-1})
  %p23 = call $X @llvm.fmuladd($X %f, $X ${-1.662319005e-1}, $X ${2.000125051e-1})
  %p45 = call $X @llvm.fmuladd($X %f, $X ${-1.316146404e-1}, $X ${1.420117617e-1})
  %p67 = call $X @llvm.fmuladd($X %f, $X ${-7.636449486e-2}, $X ${1.276620775e-1})
  %zz = fmul contract $X %z, %z
  %p47 = call $X @llvm.fmuladd($X %p67, $X %z, $X %p45)
  %p03 = call $X @llvm.fmuladd($X %p23, $X %z, $X %p01)
  %p = call $X @llvm.fmuladd($X %p47, $X %zz, $X %p03)
  %fz = fmul contract $X %f, %z
  %tail = call $X @llvm.fmuladd($X %p, $X %fz, $X %low)
  %less = call $X @llvm.fmuladd($X %z, $X ${-0.5}, $X %tail)
  %rest = fadd contract $X %f, %less
  %y = call $X @llvm.fmuladd($X %k, $X ${0.693359375}, $X %rest)
  ret $X %y
}

; What a logarithm of x gives outside (0, inf) put in.
define internal $X @t_log_special$S($X %x, $X %r) alwaysinline {
  %finite = fcmp olt $X %x, ${inf}
  %a = select $M %finite, $X %r, $X %x
  %none = fcmp oeq $X %x, ${0.0}
  %b = select $M %none, $X ${-inf}, $X %a
  %negative = fcmp olt $X %x, ${0.0}
  %y = select $M %negative, $X ${nan}, $X %b
  ret $X %y
}

define internal $X @t_log_f32$S($X %x) alwaysinline {
  %u = call $I @t_log_bits$S($X %x)
  %k = call $X @t_log_power$S($X %x, $I %u)
  %f = call $X @t_log_rest$S($I %u)
  %r = call $X @t_log_of$S($X %f, $X %k)
  %y = call $X @t_log_special$S($X %x, $X %r)
  ret $X %y
}

; The logarithm of v = 1 + x, with what was lost of x in that sum put back.
define internal $X @t_log1p_f32$S($X %x) alwaysinline {
  %v = fadd contract $X %x, ${1.0}
  %large = fcmp oge $X %v, ${2.0}
  %v.x = fsub contract $X %v, %x
  %lost.large = fsub contract $X ${1.0}, %v.x
  %v.1 = fsub contract $X %v, ${1.0}
  %lost.small = fsub contract $X %x, %v.1
  %lost = select $M %large, $X %lost.large, $X %lost.small
  %u = call $I @t_log_bits$S($X %v)
  %k = call $X @t_log_power$S($X %v, $I %u)
  %f = call $X @t_log_rest$S($I %u)
  %within = call $X @t_clamp$S($X %k, $X ${-25.0}, $X ${100.0})
  %n = call $I @llvm.fptosi.sat($X %within)
  %less = sub $I ${0}, %n
  %scale = call $X @t_pow2$S($I %less)
  %all = call $X @llvm.fmuladd($X %lost, $X %scale, $X %f)
  %r = call $X @t_log_of$S($X %all, $X %k)
  %y = call $X @t_log_special$S($X %v, $X %r)
  %a = call $X @llvm.fabs($X %x)
  %tiny = fcmp olt $X %a, ${2.9802322387695312e-8}
  %z = select $M %tiny, $X %x, $X %y
  ret $X %z
}

; ---- erf: x + x p(x^2) below 1, 1 - e^q(|x|) above ----

define internal $X @t_erf_below$S($X %x) alwaysinline {
  %z = fmul contract $X %x, %x
  %p5 = call $X @llvm.fmuladd($X %z, $X ${7.919187919e-5}, $X ${-8.030509343e-4})
  %p4 = call $X @llvm.fmuladd($X %p5, $X %z, $X ${5.190716591e-3})
  %p3 = call $X @llvm.fmuladd($X %p4, $X %z, $X ${-2.685512230e-2})
  %p2 = call $X @llvm.fmuladd($X %p3, $X %z, $X ${1.128361821e-1})
  %p1 = call $X @llvm.fmuladd($X %p2, $X %z, $X ${-3.761262894e-1})
  %p = call $X @llvm.fmuladd($X %p1, $X %z, $X ${1.283791661e-1})
  %y = call $X @llvm.fmuladd($X %x, $X %p, $X %x)
  ret $X %y
}

define internal $X @t_erf_above$S($X %a) alwaysinline {
  %b = fmul contract $X %a, %a
  %q01 = call $X @llvm.fmuladd($X %a, $X ${-1.127048492}, $X ${-3.515695571e-4})
  %q23 = call $X @llvm.fmuladd($X %a, $X ${-1.030487865e-1}, $X ${-6.382120848e-1})
  %q45 = call $X @llvm.fmuladd($X %a, $X ${-2.940882463e-3}, $X ${2.181060053e-2})
  %q46 = call $X @llvm.fmuladd($X %b, $X ${1.856994058e-4}, $X %q45)
  %q03 = call $X @llvm.fmuladd($X %q23, $X %b, $X %q01)
  %bb = fmul contract $X %b, %b
  %q = call $X @llvm.fmuladd($X %q46, $X %bb, $X %q03)
  %e = call $X @t_exp_f32$S($X %q)
  %y = fsub contract $X ${1.0}, %e
  ret $X %y
}

define internal $X @t_erf_f32$S($X %x) alwaysinline {
  %size = call $X @llvm.fabs($X %x)
  %a = call $X @t_clamp$S($X %size, $X ${0.0}, $X ${4.0})
  %below = call $X @t_erf_below$S($X %x)
  %above = call $X @t_erf_above$S($X %a)
  %signed = call $X @llvm.copysign($X %above, $X %x)
  %small = fcmp olt $X %a, ${1.0}
  %y = select $M %small, $X %below, $X %signed
  ret $X %y
}
