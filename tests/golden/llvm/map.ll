define void @ka7b0fd2f8e65(ptr %buf, ptr %dim, ptr %scratch, i64 %begin, i64 %end) {
entry:
  %x1 = alloca i64
  %x17 = alloca i64
  %x24 = alloca i64
  %d0 = getelementptr i64, ptr %dim, i64 0
  %s0 = load i64, ptr %d0, align 8
  %a0 = getelementptr ptr, ptr %buf, i64 0
  %p0 = load ptr, ptr %a0, align 8
  %a1 = getelementptr ptr, ptr %buf, i64 1
  %p1 = load ptr, ptr %a1, align 8
  %a2 = getelementptr ptr, ptr %buf, i64 2
  %p2 = load ptr, ptr %a2, align 8
  store i64 %begin, ptr %x1
  %v2 = add i64 %end, -1
  br label %b3
b3:
  %v6 = load i64, ptr %x1
  %v7 = icmp sle i64 %v6, %v2
  br i1 %v7, label %b4, label %b5
b4:
  %v8 = udiv i64 16396, 16384
  %v9 = urem i64 %v6, %v8
  %v10 = mul i64 %v9, 16384
  %v11 = add i64 %v10, 16384
  %v12 = call i64 @llvm.smin(i64 %v11, i64 13)
  %v13 = udiv i64 %v6, %v8
  %v14 = mul i64 %v13, 1260
  %v15 = add i64 %v14, 1260
  %v16 = call i64 @llvm.smin(i64 %v15, i64 %s0)
  store i64 %v14, ptr %x17
  %v18 = add i64 %v16, -1
  br label %b19
b19:
  %v22 = load i64, ptr %x17
  %v23 = icmp sle i64 %v22, %v18
  br i1 %v23, label %b20, label %b21
b20:
  store i64 %v10, ptr %x24
  %v25 = add i64 %v12, -8
  br label %b26
b26:
  %v29 = load i64, ptr %x24
  %v30 = icmp sle i64 %v29, %v25
  br i1 %v30, label %b27, label %b28
b27:
  %v31 = mul i64 13, %v22
  %v32 = add i64 %v31, %v29
  %v33 = getelementptr float, ptr %p1, i64 %v32
  %v34 = load <8 x float>, ptr %v33, align 4
  %v35 = call <8 x float> @t_sigmoid_f32_f32x8(<8 x float> %v34)
  %v36 = getelementptr float, ptr %p0, i64 %v29
  %v37 = load <8 x float>, ptr %v36, align 4
  %v38 = fmul contract <8 x float> %v35, %v37
  %v39 = getelementptr float, ptr %p2, i64 %v32
  store <8 x float> %v38, ptr %v39, align 4
  %v40 = load i64, ptr %x24
  %v41 = add i64 %v40, 8
  store i64 %v41, ptr %x24
  br label %b26
b28:
  %v42 = add i64 %v12, -1
  br label %b43
b43:
  %v46 = load i64, ptr %x24
  %v47 = icmp sle i64 %v46, %v42
  br i1 %v47, label %b44, label %b45
b44:
  %v48 = mul i64 13, %v22
  %v49 = add i64 %v48, %v46
  %v50 = getelementptr float, ptr %p1, i64 %v49
  %v51 = load float, ptr %v50, align 4
  %v52 = call float @t_sigmoid_f32_f32x1(float %v51)
  %v53 = getelementptr float, ptr %p0, i64 %v46
  %v54 = load float, ptr %v53, align 4
  %v55 = fmul contract float %v52, %v54
  %v56 = getelementptr float, ptr %p2, i64 %v49
  store float %v55, ptr %v56, align 4
  %v57 = load i64, ptr %x24
  %v58 = add i64 %v57, 1
  store i64 %v58, ptr %x24
  br label %b43
b45:
  %v59 = load i64, ptr %x17
  %v60 = add i64 %v59, 1
  store i64 %v60, ptr %x17
  br label %b19
b21:
  %v61 = load i64, ptr %x1
  %v62 = add i64 %v61, 1
  store i64 %v62, ptr %x1
  br label %b3
b5:
  ret void
}
define internal <8 x float> @t_sigmoid_f32_f32x8(<8 x float> %x) alwaysinline {
  %a = call <8 x float> @llvm.fabs(<8 x float> %x)
  %less = fneg <8 x float> %a
  %far = fcmp olt <8 x float> %less, splat (float 0xC05A200000000000)
  %within = select <8 x i1> %far, <8 x float> splat (float 0xC05A200000000000), <8 x float> %less
  %e = call <8 x float> @t_exp_within_f32x8(<8 x float> %within)
  %y = call <8 x float> @t_sigmoid_of_f32x8(<8 x float> %x, <8 x float> %e)
  ret <8 x float> %y
}
define internal float @t_sigmoid_f32_f32x1(float %x) alwaysinline {
  %a = call float @llvm.fabs(float %x)
  %less = fneg float %a
  %far = fcmp olt float %less, 0xC05A200000000000
  %within = select i1 %far, float 0xC05A200000000000, float %less
  %e = call float @t_exp_within_f32x1(float %within)
  %y = call float @t_sigmoid_of_f32x1(float %x, float %e)
  ret float %y
}
; For x of -104.5 to 90; times 2^n in two halves, so that a result below the normal numbers is rounded once.
define internal <8 x float> @t_exp_within_f32x8(<8 x float> %x) alwaysinline {
  %steps = call <8 x float> @t_exp_steps_f32x8(<8 x float> %x)
  %n = call <8 x i32> @t_exp_power_f32x8(<8 x float> %steps)
  %r = call <8 x float> @t_exp_rest_f32x8(<8 x float> %x, <8 x float> %steps)
  %tail = call <8 x float> @t_exp_tail_f32x8(<8 x float> %r)
  %less = fadd contract <8 x float> %r, %tail
  %p = fadd contract <8 x float> %less, splat (float 0x3FF0000000000000)
  %half = ashr <8 x i32> %n, splat (i32 1)
  %other = sub <8 x i32> %n, %half
  %a = call <8 x float> @t_pow2_f32x8(<8 x i32> %half)
  %b = call <8 x float> @t_pow2_f32x8(<8 x i32> %other)
  %pa = fmul contract <8 x float> %p, %a
  %y = fmul contract <8 x float> %pa, %b
  ret <8 x float> %y
}
; Of e^-|x|, which does not overflow: e / (e + 1) below 0, 1 / (e + 1) above.
define internal <8 x float> @t_sigmoid_of_f32x8(<8 x float> %x, <8 x float> %e) alwaysinline {
  %negative = fcmp olt <8 x float> %x, splat (float 0x0000000000000000)
  %above = select <8 x i1> %negative, <8 x float> %e, <8 x float> splat (float 0x3FF0000000000000)
  %below = fadd contract <8 x float> %e, splat (float 0x3FF0000000000000)
  %y = fdiv contract <8 x float> %above, %below
  ret <8 x float> %y
}
; For x of -104.5 to 90; times 2^n in two halves, so that a result below the normal numbers is rounded once.
define internal float @t_exp_within_f32x1(float %x) alwaysinline {
  %steps = call float @t_exp_steps_f32x1(float %x)
  %n = call i32 @t_exp_power_f32x1(float %steps)
  %r = call float @t_exp_rest_f32x1(float %x, float %steps)
  %tail = call float @t_exp_tail_f32x1(float %r)
  %less = fadd contract float %r, %tail
  %p = fadd contract float %less, 0x3FF0000000000000
  %half = ashr i32 %n, 1
  %other = sub i32 %n, %half
  %a = call float @t_pow2_f32x1(i32 %half)
  %b = call float @t_pow2_f32x1(i32 %other)
  %pa = fmul contract float %p, %a
  %y = fmul contract float %pa, %b
  ret float %y
}
; Of e^-|x|, which does not overflow: e / (e + 1) below 0, 1 / (e + 1) above.
define internal float @t_sigmoid_of_f32x1(float %x, float %e) alwaysinline {
  %negative = fcmp olt float %x, 0x0000000000000000
  %above = select i1 %negative, float %e, float 0x3FF0000000000000
  %below = fadd contract float %e, 0x3FF0000000000000
  %y = fdiv contract float %above, %below
  ret float %y
}
; x / ln2 to the nearest integer, plus 1.5 * 2^23: its lowest bits are that integer.
define internal <8 x float> @t_exp_steps_f32x8(<8 x float> %x) alwaysinline {
  %t = call <8 x float> @llvm.fmuladd(<8 x float> %x, <8 x float> splat (float 0x3FF7154760000000), <8 x float> splat (float 0x4168000000000000))
  ret <8 x float> %t
}
define internal <8 x i32> @t_exp_power_f32x8(<8 x float> %steps) alwaysinline {
  %bits = bitcast <8 x float> %steps to <8 x i32>
  %n = sub <8 x i32> %bits, splat (i32 1262485504)
  ret <8 x i32> %n
}
; r of x = n ln2 + r; the first part of ln2 has 10 bits, so that any multiple of it is exact.
define internal <8 x float> @t_exp_rest_f32x8(<8 x float> %x, <8 x float> %steps) alwaysinline {
  %k = fsub contract <8 x float> %steps, splat (float 0x4168000000000000)
  %most = call <8 x float> @llvm.fmuladd(<8 x float> %k, <8 x float> splat (float 0xBFE6300000000000), <8 x float> %x)
  %r = call <8 x float> @llvm.fmuladd(<8 x float> %k, <8 x float> splat (float 0x3F2BD01060000000), <8 x float> %most)
  ret <8 x float> %r
}
; e^r - 1 for |r| <= ln2 / 2, in two parts: r, and this.
define internal <8 x float> @t_exp_tail_f32x8(<8 x float> %r) alwaysinline {
  %z = fmul contract <8 x float> %r, %r
  %p01 = call <8 x float> @llvm.fmuladd(<8 x float> %r, <8 x float> splat (float 0x3FC5554920000000), <8 x float> splat (float 0x3FDFFFFFC0000000))
  %p23 = call <8 x float> @llvm.fmuladd(<8 x float> %r, <8 x float> splat (float 0x3F81239C60000000), <8 x float> splat (float 0x3FA5558BC0000000))
  %p24 = call <8 x float> @llvm.fmuladd(<8 x float> %z, <8 x float> splat (float 0x3F56A41540000000), <8 x float> %p23)
  %p = call <8 x float> @llvm.fmuladd(<8 x float> %p24, <8 x float> %z, <8 x float> %p01)
  %tail = fmul contract <8 x float> %p, %z
  ret <8 x float> %tail
}
; 2^n for -126 <= n <= 127.
define internal <8 x float> @t_pow2_f32x8(<8 x i32> %n) alwaysinline {
  %biased = add <8 x i32> %n, splat (i32 127)
  %bits = shl <8 x i32> %biased, splat (i32 23)
  %r = bitcast <8 x i32> %bits to <8 x float>
  ret <8 x float> %r
}
; x / ln2 to the nearest integer, plus 1.5 * 2^23: its lowest bits are that integer.
define internal float @t_exp_steps_f32x1(float %x) alwaysinline {
  %t = call float @llvm.fmuladd(float %x, float 0x3FF7154760000000, float 0x4168000000000000)
  ret float %t
}
define internal i32 @t_exp_power_f32x1(float %steps) alwaysinline {
  %bits = bitcast float %steps to i32
  %n = sub i32 %bits, 1262485504
  ret i32 %n
}
; r of x = n ln2 + r; the first part of ln2 has 10 bits, so that any multiple of it is exact.
define internal float @t_exp_rest_f32x1(float %x, float %steps) alwaysinline {
  %k = fsub contract float %steps, 0x4168000000000000
  %most = call float @llvm.fmuladd(float %k, float 0xBFE6300000000000, float %x)
  %r = call float @llvm.fmuladd(float %k, float 0x3F2BD01060000000, float %most)
  ret float %r
}
; e^r - 1 for |r| <= ln2 / 2, in two parts: r, and this.
define internal float @t_exp_tail_f32x1(float %r) alwaysinline {
  %z = fmul contract float %r, %r
  %p01 = call float @llvm.fmuladd(float %r, float 0x3FC5554920000000, float 0x3FDFFFFFC0000000)
  %p23 = call float @llvm.fmuladd(float %r, float 0x3F81239C60000000, float 0x3FA5558BC0000000)
  %p24 = call float @llvm.fmuladd(float %z, float 0x3F56A41540000000, float %p23)
  %p = call float @llvm.fmuladd(float %p24, float %z, float %p01)
  %tail = fmul contract float %p, %z
  ret float %tail
}
; 2^n for -126 <= n <= 127.
define internal float @t_pow2_f32x1(i32 %n) alwaysinline {
  %biased = add i32 %n, 127
  %bits = shl i32 %biased, 23
  %r = bitcast i32 %bits to float
  ret float %r
}
