define void @kb497c5043aa6(ptr %buf, ptr %dim, ptr %scratch, i64 %begin, i64 %end) {
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
  %v1 = fcmp olt <8 x float> %x, splat (float 0xC05A200000000000)
  %v2 = select <8 x i1> %v1, <8 x float> splat (float 0xC05A200000000000), <8 x float> %x
  %v3 = fcmp ogt <8 x float> %v2, splat (float 0x4044000000000000)
  %v4 = select <8 x i1> %v3, <8 x float> splat (float 0x4044000000000000), <8 x float> %v2
  %v5 = call <8 x float> @t_neg_of_floats_f32x8(<8 x float> %v4)
  %v6 = fmul contract <8 x float> %v5, splat (float 0x3FF7154760000000)
  %v7 = fadd contract <8 x float> %v6, splat (float 0x41680007E0000000)
  %v8 = bitcast <8 x float> %v7 to <8 x i32>
  %v9 = shl <8 x i32> %v8, splat (i32 23)
  %v10 = bitcast <8 x i32> %v9 to <8 x float>
  %v11 = fsub contract <8 x float> %v7, splat (float 0x41680007E0000000)
  %v12 = fmul contract <8 x float> %v11, splat (float 0x3FE6300000000000)
  %v13 = fsub contract <8 x float> %v5, %v12
  %v14 = fmul contract <8 x float> %v11, splat (float 0xBF2BD01060000000)
  %v15 = fsub contract <8 x float> %v13, %v14
  %v16 = fmul contract <8 x float> %v15, %v15
  %v17 = fmul contract <8 x float> %v16, splat (float 0x3F56A41540000000)
  %v18 = fmul contract <8 x float> %v15, splat (float 0x3F81239C60000000)
  %v19 = fadd contract <8 x float> %v18, splat (float 0x3FA5558BC0000000)
  %v20 = fadd contract <8 x float> %v17, %v19
  %v21 = fmul contract <8 x float> %v20, %v16
  %v22 = fmul contract <8 x float> %v15, splat (float 0x3FC5554920000000)
  %v23 = fadd contract <8 x float> %v22, splat (float 0x3FDFFFFFC0000000)
  %v24 = fadd contract <8 x float> %v21, %v23
  %v25 = fmul contract <8 x float> %v24, %v16
  %v26 = fadd contract <8 x float> %v15, %v25
  %v27 = fmul contract <8 x float> %v10, %v26
  %v28 = fadd contract <8 x float> %v27, %v10
  %v29 = fadd contract <8 x float> %v28, splat (float 0x3BF0000000000000)
  %v30 = fdiv contract <8 x float> splat (float 0x3BF0000000000000), %v29
  ret <8 x float> %v30
}
define internal float @t_sigmoid_f32_f32x1(float %x) alwaysinline {
  %v1 = fcmp olt float %x, 0xC05A200000000000
  %v2 = select i1 %v1, float 0xC05A200000000000, float %x
  %v3 = fcmp ogt float %v2, 0x4044000000000000
  %v4 = select i1 %v3, float 0x4044000000000000, float %v2
  %v5 = call float @t_neg_of_floats_f32x1(float %v4)
  %v6 = fmul contract float %v5, 0x3FF7154760000000
  %v7 = fadd contract float %v6, 0x41680007E0000000
  %v8 = bitcast float %v7 to i32
  %v9 = shl i32 %v8, 23
  %v10 = bitcast i32 %v9 to float
  %v11 = fsub contract float %v7, 0x41680007E0000000
  %v12 = fmul contract float %v11, 0x3FE6300000000000
  %v13 = fsub contract float %v5, %v12
  %v14 = fmul contract float %v11, 0xBF2BD01060000000
  %v15 = fsub contract float %v13, %v14
  %v16 = fmul contract float %v15, %v15
  %v17 = fmul contract float %v16, 0x3F56A41540000000
  %v18 = fmul contract float %v15, 0x3F81239C60000000
  %v19 = fadd contract float %v18, 0x3FA5558BC0000000
  %v20 = fadd contract float %v17, %v19
  %v21 = fmul contract float %v20, %v16
  %v22 = fmul contract float %v15, 0x3FC5554920000000
  %v23 = fadd contract float %v22, 0x3FDFFFFFC0000000
  %v24 = fadd contract float %v21, %v23
  %v25 = fmul contract float %v24, %v16
  %v26 = fadd contract float %v15, %v25
  %v27 = fmul contract float %v10, %v26
  %v28 = fadd contract float %v27, %v10
  %v29 = fadd contract float %v28, 0x3BF0000000000000
  %v30 = fdiv contract float 0x3BF0000000000000, %v29
  ret float %v30
}
define internal <8 x float> @t_neg_of_floats_f32x8(<8 x float> %x) alwaysinline {
  %r = fneg <8 x float> %x
  ret <8 x float> %r
}
define internal float @t_neg_of_floats_f32x1(float %x) alwaysinline {
  %r = fneg float %x
  ret float %r
}
