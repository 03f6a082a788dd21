define void @k89b0a89d98f0(ptr %buf, ptr %dim, ptr %scratch, i64 %begin, i64 %end) {
entry:
  %d0 = getelementptr i64, ptr %dim, i64 0
  %s0 = load i64, ptr %d0, align 8
  %a0 = getelementptr ptr, ptr %buf, i64 0
  %p0 = load ptr, ptr %a0, align 8
  %a1 = getelementptr ptr, ptr %buf, i64 1
  %p1 = load ptr, ptr %a1, align 8
  %a2 = getelementptr ptr, ptr %buf, i64 2
  %p2 = load ptr, ptr %a2, align 8
  %a3 = getelementptr ptr, ptr %buf, i64 3
  %p3 = load ptr, ptr %a3, align 8
  %sums = alloca [384 x float], align 64
  %sum.0.0 = alloca <16 x float>
  %sum.0.1 = alloca <16 x float>
  %sum.0.2 = alloca <16 x float>
  %sum.1.0 = alloca <16 x float>
  %sum.1.1 = alloca <16 x float>
  %sum.1.2 = alloca <16 x float>
  %sum.2.0 = alloca <16 x float>
  %sum.2.1 = alloca <16 x float>
  %sum.2.2 = alloca <16 x float>
  %sum.3.0 = alloca <16 x float>
  %sum.3.1 = alloca <16 x float>
  %sum.3.2 = alloca <16 x float>
  %sum.4.0 = alloca <16 x float>
  %sum.4.1 = alloca <16 x float>
  %sum.4.2 = alloca <16 x float>
  %sum.5.0 = alloca <16 x float>
  %sum.5.1 = alloca <16 x float>
  %sum.5.2 = alloca <16 x float>
  %sum.6.0 = alloca <16 x float>
  %sum.6.1 = alloca <16 x float>
  %sum.6.2 = alloca <16 x float>
  %sum.7.0 = alloca <16 x float>
  %sum.7.1 = alloca <16 x float>
  %sum.7.2 = alloca <16 x float>
  %count = bitcast i64 %s0 to i64
  %columns = bitcast i64 37 to i64
  %depth = bitcast i64 29 to i64
  %v1 = add i64 %s0, 7
  %v2 = udiv i64 %v1, 8
  %tiles = bitcast i64 %v2 to i64
  %panels = bitcast i64 1 to i64
  %v3 = add i64 %s0, 7
  %v4 = udiv i64 %v3, 8
  %v5 = add i64 %s0, 48
  %v6 = udiv i64 %v5, 96
  %v7 = call i64 @llvm.smax(i64 1, i64 %v6)
  %v8 = call i64 @llvm.smin(i64 %v4, i64 %v7)
  %m_blocks = bitcast i64 %v8 to i64
  %n_blocks = bitcast i64 1 to i64
  %step = bitcast i64 29 to i64
  br label %task.enter
task.enter:
  br label %task.test
task.test:
  %task = phi i64 [ %begin, %task.enter ], [ %task.next, %task.again ]
  %task.more = icmp slt i64 %task, %end
  br i1 %task.more, label %task.body, label %task.end
task.body:
  %block = urem i64 %task, %m_blocks
  %rest = udiv i64 %task, %m_blocks
  %across = urem i64 %rest, %n_blocks
  %matrix = udiv i64 %rest, %n_blocks
  %a = getelementptr float, ptr %p0, i64 0
  %b = getelementptr float, ptr %p1, i64 0
  %block.next = add i64 %block, 1
  %across.next = add i64 %across, 1
  %tiles.low.few = udiv i64 %tiles, %m_blocks
  %tiles.low.longer = urem i64 %tiles, %m_blocks
  %tiles.low.whole = mul i64 %block, %tiles.low.few
  %tiles.low.one = call i64 @llvm.smin(i64 %block, i64 %tiles.low.longer)
  %tiles.low = add i64 %tiles.low.whole, %tiles.low.one
  %tiles.high.few = udiv i64 %tiles, %m_blocks
  %tiles.high.longer = urem i64 %tiles, %m_blocks
  %tiles.high.whole = mul i64 %block.next, %tiles.high.few
  %tiles.high.one = call i64 @llvm.smin(i64 %block.next, i64 %tiles.high.longer)
  %tiles.high = add i64 %tiles.high.whole, %tiles.high.one
  %panels.low.few = udiv i64 %panels, %n_blocks
  %panels.low.longer = urem i64 %panels, %n_blocks
  %panels.low.whole = mul i64 %across, %panels.low.few
  %panels.low.one = call i64 @llvm.smin(i64 %across, i64 %panels.low.longer)
  %panels.low = add i64 %panels.low.whole, %panels.low.one
  %panels.high.few = udiv i64 %panels, %n_blocks
  %panels.high.longer = urem i64 %panels, %n_blocks
  %panels.high.whole = mul i64 %across.next, %panels.high.few
  %panels.high.one = call i64 @llvm.smin(i64 %across.next, i64 %panels.high.longer)
  %panels.high = add i64 %panels.high.whole, %panels.high.one
  br label %p.enter
p.enter:
  br label %p.test
p.test:
  %p = phi i64 [ %panels.low, %p.enter ], [ %p.next, %p.again ]
  %p.more = icmp slt i64 %p, %panels.high
  br i1 %p.more, label %p.body, label %p.end
p.body:
  %p.depth = mul i64 %p, %depth
  %p.place = mul i64 %p.depth, 48
  %panel = getelementptr float, ptr %b, i64 %p.place
  %low = mul i64 %p, 48
  %low.next = add i64 %low, 48
  %high = call i64 @llvm.smin(i64 %low.next, i64 %columns)
  br label %t.enter
t.enter:
  br label %t.test
t.test:
  %t = phi i64 [ %tiles.low, %t.enter ], [ %t.next, %t.again ]
  %t.more = icmp slt i64 %t, %tiles.high
  br i1 %t.more, label %t.body, label %t.end
t.body:
  %tile.first = mul i64 %t, 8
  %tile.left = sub i64 %count, %tile.first
  %tile.rows = call i64 @llvm.smin(i64 %tile.left, i64 8)
  %sums.last = sub i64 %tile.rows, 1
  %sums.many = icmp sgt i64 %tile.rows, 4
  %sums.few = xor i1 %sums.many, true
  br i1 %sums.many, label %sums.high.yes, label %sums.high.no
sums.high.yes:
  %sums.high.r0 = call i64 @llvm.smin(i64 0, i64 %sums.last)
  %sums.high.r1 = call i64 @llvm.smin(i64 1, i64 %sums.last)
  %sums.high.r2 = call i64 @llvm.smin(i64 2, i64 %sums.last)
  %sums.high.r3 = call i64 @llvm.smin(i64 3, i64 %sums.last)
  %sums.high.r4 = call i64 @llvm.smin(i64 4, i64 %sums.last)
  %sums.high.r5 = call i64 @llvm.smin(i64 5, i64 %sums.last)
  %sums.high.r6 = call i64 @llvm.smin(i64 6, i64 %sums.last)
  %sums.high.r7 = call i64 @llvm.smin(i64 7, i64 %sums.last)
  %sums.high.place = mul i64 0, 48
  %sums.high.sums = getelementptr float, ptr %sums, i64 %sums.high.place
  store <16 x float> zeroinitializer, ptr %sum.0.0
  store <16 x float> zeroinitializer, ptr %sum.0.1
  store <16 x float> zeroinitializer, ptr %sum.0.2
  store <16 x float> zeroinitializer, ptr %sum.1.0
  store <16 x float> zeroinitializer, ptr %sum.1.1
  store <16 x float> zeroinitializer, ptr %sum.1.2
  store <16 x float> zeroinitializer, ptr %sum.2.0
  store <16 x float> zeroinitializer, ptr %sum.2.1
  store <16 x float> zeroinitializer, ptr %sum.2.2
  store <16 x float> zeroinitializer, ptr %sum.3.0
  store <16 x float> zeroinitializer, ptr %sum.3.1
  store <16 x float> zeroinitializer, ptr %sum.3.2
  store <16 x float> zeroinitializer, ptr %sum.4.0
  store <16 x float> zeroinitializer, ptr %sum.4.1
  store <16 x float> zeroinitializer, ptr %sum.4.2
  store <16 x float> zeroinitializer, ptr %sum.5.0
  store <16 x float> zeroinitializer, ptr %sum.5.1
  store <16 x float> zeroinitializer, ptr %sum.5.2
  store <16 x float> zeroinitializer, ptr %sum.6.0
  store <16 x float> zeroinitializer, ptr %sum.6.1
  store <16 x float> zeroinitializer, ptr %sum.6.2
  store <16 x float> zeroinitializer, ptr %sum.7.0
  store <16 x float> zeroinitializer, ptr %sum.7.1
  store <16 x float> zeroinitializer, ptr %sum.7.2
  %sums.high.m0 = add i64 %tile.first, %sums.high.r0
  %sums.high.row0 = mul i64 %sums.high.m0, %step
  %sums.high.a0 = getelementptr float, ptr %a, i64 %sums.high.row0
  %sums.high.m1 = add i64 %tile.first, %sums.high.r1
  %sums.high.row1 = mul i64 %sums.high.m1, %step
  %sums.high.a1 = getelementptr float, ptr %a, i64 %sums.high.row1
  %sums.high.m2 = add i64 %tile.first, %sums.high.r2
  %sums.high.row2 = mul i64 %sums.high.m2, %step
  %sums.high.a2 = getelementptr float, ptr %a, i64 %sums.high.row2
  %sums.high.m3 = add i64 %tile.first, %sums.high.r3
  %sums.high.row3 = mul i64 %sums.high.m3, %step
  %sums.high.a3 = getelementptr float, ptr %a, i64 %sums.high.row3
  %sums.high.m4 = add i64 %tile.first, %sums.high.r4
  %sums.high.row4 = mul i64 %sums.high.m4, %step
  %sums.high.a4 = getelementptr float, ptr %a, i64 %sums.high.row4
  %sums.high.m5 = add i64 %tile.first, %sums.high.r5
  %sums.high.row5 = mul i64 %sums.high.m5, %step
  %sums.high.a5 = getelementptr float, ptr %a, i64 %sums.high.row5
  %sums.high.m6 = add i64 %tile.first, %sums.high.r6
  %sums.high.row6 = mul i64 %sums.high.m6, %step
  %sums.high.a6 = getelementptr float, ptr %a, i64 %sums.high.row6
  %sums.high.m7 = add i64 %tile.first, %sums.high.r7
  %sums.high.row7 = mul i64 %sums.high.m7, %step
  %sums.high.a7 = getelementptr float, ptr %a, i64 %sums.high.row7
  br label %sums.high.k.enter
sums.high.k.enter:
  br label %sums.high.k.test
sums.high.k.test:
  %sums.high.k = phi i64 [ 0, %sums.high.k.enter ], [ %sums.high.k.next, %sums.high.k.again ]
  %sums.high.k.more = icmp slt i64 %sums.high.k, %depth
  br i1 %sums.high.k.more, label %sums.high.k.body, label %sums.high.k.end
sums.high.k.body:
  %sums.high.across = mul i64 %sums.high.k, 48
  %sums.high.panel = getelementptr float, ptr %panel, i64 %sums.high.across
  %sums.high.b0.at = getelementptr float, ptr %sums.high.panel, i64 0
  %sums.high.b0 = load <16 x float>, ptr %sums.high.b0.at, align 4
  %sums.high.b1.at = getelementptr float, ptr %sums.high.panel, i64 16
  %sums.high.b1 = load <16 x float>, ptr %sums.high.b1.at, align 4
  %sums.high.b2.at = getelementptr float, ptr %sums.high.panel, i64 32
  %sums.high.b2 = load <16 x float>, ptr %sums.high.b2.at, align 4
  %sums.high.x0.at = getelementptr float, ptr %sums.high.a0, i64 %sums.high.k
  %sums.high.x0 = load float, ptr %sums.high.x0.at, align 4
  %sums.high.x0.0 = insertelement <16 x float> poison, float %sums.high.x0, i64 0
  %sums.high.x0.all = shufflevector <16 x float> %sums.high.x0.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s0.0.before = load <16 x float>, ptr %sum.0.0
  %sums.high.s0.0.product = fmul contract <16 x float> %sums.high.x0.all, %sums.high.b0
  %sums.high.s0.0 = fadd contract <16 x float> %sums.high.s0.0.before, %sums.high.s0.0.product
  store <16 x float> %sums.high.s0.0, ptr %sum.0.0
  %sums.high.s0.1.before = load <16 x float>, ptr %sum.0.1
  %sums.high.s0.1.product = fmul contract <16 x float> %sums.high.x0.all, %sums.high.b1
  %sums.high.s0.1 = fadd contract <16 x float> %sums.high.s0.1.before, %sums.high.s0.1.product
  store <16 x float> %sums.high.s0.1, ptr %sum.0.1
  %sums.high.s0.2.before = load <16 x float>, ptr %sum.0.2
  %sums.high.s0.2.product = fmul contract <16 x float> %sums.high.x0.all, %sums.high.b2
  %sums.high.s0.2 = fadd contract <16 x float> %sums.high.s0.2.before, %sums.high.s0.2.product
  store <16 x float> %sums.high.s0.2, ptr %sum.0.2
  %sums.high.x1.at = getelementptr float, ptr %sums.high.a1, i64 %sums.high.k
  %sums.high.x1 = load float, ptr %sums.high.x1.at, align 4
  %sums.high.x1.0 = insertelement <16 x float> poison, float %sums.high.x1, i64 0
  %sums.high.x1.all = shufflevector <16 x float> %sums.high.x1.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s1.0.before = load <16 x float>, ptr %sum.1.0
  %sums.high.s1.0.product = fmul contract <16 x float> %sums.high.x1.all, %sums.high.b0
  %sums.high.s1.0 = fadd contract <16 x float> %sums.high.s1.0.before, %sums.high.s1.0.product
  store <16 x float> %sums.high.s1.0, ptr %sum.1.0
  %sums.high.s1.1.before = load <16 x float>, ptr %sum.1.1
  %sums.high.s1.1.product = fmul contract <16 x float> %sums.high.x1.all, %sums.high.b1
  %sums.high.s1.1 = fadd contract <16 x float> %sums.high.s1.1.before, %sums.high.s1.1.product
  store <16 x float> %sums.high.s1.1, ptr %sum.1.1
  %sums.high.s1.2.before = load <16 x float>, ptr %sum.1.2
  %sums.high.s1.2.product = fmul contract <16 x float> %sums.high.x1.all, %sums.high.b2
  %sums.high.s1.2 = fadd contract <16 x float> %sums.high.s1.2.before, %sums.high.s1.2.product
  store <16 x float> %sums.high.s1.2, ptr %sum.1.2
  %sums.high.x2.at = getelementptr float, ptr %sums.high.a2, i64 %sums.high.k
  %sums.high.x2 = load float, ptr %sums.high.x2.at, align 4
  %sums.high.x2.0 = insertelement <16 x float> poison, float %sums.high.x2, i64 0
  %sums.high.x2.all = shufflevector <16 x float> %sums.high.x2.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s2.0.before = load <16 x float>, ptr %sum.2.0
  %sums.high.s2.0.product = fmul contract <16 x float> %sums.high.x2.all, %sums.high.b0
  %sums.high.s2.0 = fadd contract <16 x float> %sums.high.s2.0.before, %sums.high.s2.0.product
  store <16 x float> %sums.high.s2.0, ptr %sum.2.0
  %sums.high.s2.1.before = load <16 x float>, ptr %sum.2.1
  %sums.high.s2.1.product = fmul contract <16 x float> %sums.high.x2.all, %sums.high.b1
  %sums.high.s2.1 = fadd contract <16 x float> %sums.high.s2.1.before, %sums.high.s2.1.product
  store <16 x float> %sums.high.s2.1, ptr %sum.2.1
  %sums.high.s2.2.before = load <16 x float>, ptr %sum.2.2
  %sums.high.s2.2.product = fmul contract <16 x float> %sums.high.x2.all, %sums.high.b2
  %sums.high.s2.2 = fadd contract <16 x float> %sums.high.s2.2.before, %sums.high.s2.2.product
  store <16 x float> %sums.high.s2.2, ptr %sum.2.2
  %sums.high.x3.at = getelementptr float, ptr %sums.high.a3, i64 %sums.high.k
  %sums.high.x3 = load float, ptr %sums.high.x3.at, align 4
  %sums.high.x3.0 = insertelement <16 x float> poison, float %sums.high.x3, i64 0
  %sums.high.x3.all = shufflevector <16 x float> %sums.high.x3.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s3.0.before = load <16 x float>, ptr %sum.3.0
  %sums.high.s3.0.product = fmul contract <16 x float> %sums.high.x3.all, %sums.high.b0
  %sums.high.s3.0 = fadd contract <16 x float> %sums.high.s3.0.before, %sums.high.s3.0.product
  store <16 x float> %sums.high.s3.0, ptr %sum.3.0
  %sums.high.s3.1.before = load <16 x float>, ptr %sum.3.1
  %sums.high.s3.1.product = fmul contract <16 x float> %sums.high.x3.all, %sums.high.b1
  %sums.high.s3.1 = fadd contract <16 x float> %sums.high.s3.1.before, %sums.high.s3.1.product
  store <16 x float> %sums.high.s3.1, ptr %sum.3.1
  %sums.high.s3.2.before = load <16 x float>, ptr %sum.3.2
  %sums.high.s3.2.product = fmul contract <16 x float> %sums.high.x3.all, %sums.high.b2
  %sums.high.s3.2 = fadd contract <16 x float> %sums.high.s3.2.before, %sums.high.s3.2.product
  store <16 x float> %sums.high.s3.2, ptr %sum.3.2
  %sums.high.x4.at = getelementptr float, ptr %sums.high.a4, i64 %sums.high.k
  %sums.high.x4 = load float, ptr %sums.high.x4.at, align 4
  %sums.high.x4.0 = insertelement <16 x float> poison, float %sums.high.x4, i64 0
  %sums.high.x4.all = shufflevector <16 x float> %sums.high.x4.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s4.0.before = load <16 x float>, ptr %sum.4.0
  %sums.high.s4.0.product = fmul contract <16 x float> %sums.high.x4.all, %sums.high.b0
  %sums.high.s4.0 = fadd contract <16 x float> %sums.high.s4.0.before, %sums.high.s4.0.product
  store <16 x float> %sums.high.s4.0, ptr %sum.4.0
  %sums.high.s4.1.before = load <16 x float>, ptr %sum.4.1
  %sums.high.s4.1.product = fmul contract <16 x float> %sums.high.x4.all, %sums.high.b1
  %sums.high.s4.1 = fadd contract <16 x float> %sums.high.s4.1.before, %sums.high.s4.1.product
  store <16 x float> %sums.high.s4.1, ptr %sum.4.1
  %sums.high.s4.2.before = load <16 x float>, ptr %sum.4.2
  %sums.high.s4.2.product = fmul contract <16 x float> %sums.high.x4.all, %sums.high.b2
  %sums.high.s4.2 = fadd contract <16 x float> %sums.high.s4.2.before, %sums.high.s4.2.product
  store <16 x float> %sums.high.s4.2, ptr %sum.4.2
  %sums.high.x5.at = getelementptr float, ptr %sums.high.a5, i64 %sums.high.k
  %sums.high.x5 = load float, ptr %sums.high.x5.at, align 4
  %sums.high.x5.0 = insertelement <16 x float> poison, float %sums.high.x5, i64 0
  %sums.high.x5.all = shufflevector <16 x float> %sums.high.x5.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s5.0.before = load <16 x float>, ptr %sum.5.0
  %sums.high.s5.0.product = fmul contract <16 x float> %sums.high.x5.all, %sums.high.b0
  %sums.high.s5.0 = fadd contract <16 x float> %sums.high.s5.0.before, %sums.high.s5.0.product
  store <16 x float> %sums.high.s5.0, ptr %sum.5.0
  %sums.high.s5.1.before = load <16 x float>, ptr %sum.5.1
  %sums.high.s5.1.product = fmul contract <16 x float> %sums.high.x5.all, %sums.high.b1
  %sums.high.s5.1 = fadd contract <16 x float> %sums.high.s5.1.before, %sums.high.s5.1.product
  store <16 x float> %sums.high.s5.1, ptr %sum.5.1
  %sums.high.s5.2.before = load <16 x float>, ptr %sum.5.2
  %sums.high.s5.2.product = fmul contract <16 x float> %sums.high.x5.all, %sums.high.b2
  %sums.high.s5.2 = fadd contract <16 x float> %sums.high.s5.2.before, %sums.high.s5.2.product
  store <16 x float> %sums.high.s5.2, ptr %sum.5.2
  %sums.high.x6.at = getelementptr float, ptr %sums.high.a6, i64 %sums.high.k
  %sums.high.x6 = load float, ptr %sums.high.x6.at, align 4
  %sums.high.x6.0 = insertelement <16 x float> poison, float %sums.high.x6, i64 0
  %sums.high.x6.all = shufflevector <16 x float> %sums.high.x6.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s6.0.before = load <16 x float>, ptr %sum.6.0
  %sums.high.s6.0.product = fmul contract <16 x float> %sums.high.x6.all, %sums.high.b0
  %sums.high.s6.0 = fadd contract <16 x float> %sums.high.s6.0.before, %sums.high.s6.0.product
  store <16 x float> %sums.high.s6.0, ptr %sum.6.0
  %sums.high.s6.1.before = load <16 x float>, ptr %sum.6.1
  %sums.high.s6.1.product = fmul contract <16 x float> %sums.high.x6.all, %sums.high.b1
  %sums.high.s6.1 = fadd contract <16 x float> %sums.high.s6.1.before, %sums.high.s6.1.product
  store <16 x float> %sums.high.s6.1, ptr %sum.6.1
  %sums.high.s6.2.before = load <16 x float>, ptr %sum.6.2
  %sums.high.s6.2.product = fmul contract <16 x float> %sums.high.x6.all, %sums.high.b2
  %sums.high.s6.2 = fadd contract <16 x float> %sums.high.s6.2.before, %sums.high.s6.2.product
  store <16 x float> %sums.high.s6.2, ptr %sum.6.2
  %sums.high.x7.at = getelementptr float, ptr %sums.high.a7, i64 %sums.high.k
  %sums.high.x7 = load float, ptr %sums.high.x7.at, align 4
  %sums.high.x7.0 = insertelement <16 x float> poison, float %sums.high.x7, i64 0
  %sums.high.x7.all = shufflevector <16 x float> %sums.high.x7.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.high.s7.0.before = load <16 x float>, ptr %sum.7.0
  %sums.high.s7.0.product = fmul contract <16 x float> %sums.high.x7.all, %sums.high.b0
  %sums.high.s7.0 = fadd contract <16 x float> %sums.high.s7.0.before, %sums.high.s7.0.product
  store <16 x float> %sums.high.s7.0, ptr %sum.7.0
  %sums.high.s7.1.before = load <16 x float>, ptr %sum.7.1
  %sums.high.s7.1.product = fmul contract <16 x float> %sums.high.x7.all, %sums.high.b1
  %sums.high.s7.1 = fadd contract <16 x float> %sums.high.s7.1.before, %sums.high.s7.1.product
  store <16 x float> %sums.high.s7.1, ptr %sum.7.1
  %sums.high.s7.2.before = load <16 x float>, ptr %sum.7.2
  %sums.high.s7.2.product = fmul contract <16 x float> %sums.high.x7.all, %sums.high.b2
  %sums.high.s7.2 = fadd contract <16 x float> %sums.high.s7.2.before, %sums.high.s7.2.product
  store <16 x float> %sums.high.s7.2, ptr %sum.7.2
  br label %sums.high.k.again
sums.high.k.again:
  %sums.high.k.next = add i64 %sums.high.k, 1
  br label %sums.high.k.test
sums.high.k.end:
  %sums.high.0.0 = load <16 x float>, ptr %sum.0.0
  %sums.high.0.0.to = getelementptr float, ptr %sums.high.sums, i64 0
  store <16 x float> %sums.high.0.0, ptr %sums.high.0.0.to, align 4
  %sums.high.0.1 = load <16 x float>, ptr %sum.0.1
  %sums.high.0.1.to = getelementptr float, ptr %sums.high.sums, i64 16
  store <16 x float> %sums.high.0.1, ptr %sums.high.0.1.to, align 4
  %sums.high.0.2 = load <16 x float>, ptr %sum.0.2
  %sums.high.0.2.to = getelementptr float, ptr %sums.high.sums, i64 32
  store <16 x float> %sums.high.0.2, ptr %sums.high.0.2.to, align 4
  %sums.high.1.0 = load <16 x float>, ptr %sum.1.0
  %sums.high.1.0.to = getelementptr float, ptr %sums.high.sums, i64 48
  store <16 x float> %sums.high.1.0, ptr %sums.high.1.0.to, align 4
  %sums.high.1.1 = load <16 x float>, ptr %sum.1.1
  %sums.high.1.1.to = getelementptr float, ptr %sums.high.sums, i64 64
  store <16 x float> %sums.high.1.1, ptr %sums.high.1.1.to, align 4
  %sums.high.1.2 = load <16 x float>, ptr %sum.1.2
  %sums.high.1.2.to = getelementptr float, ptr %sums.high.sums, i64 80
  store <16 x float> %sums.high.1.2, ptr %sums.high.1.2.to, align 4
  %sums.high.2.0 = load <16 x float>, ptr %sum.2.0
  %sums.high.2.0.to = getelementptr float, ptr %sums.high.sums, i64 96
  store <16 x float> %sums.high.2.0, ptr %sums.high.2.0.to, align 4
  %sums.high.2.1 = load <16 x float>, ptr %sum.2.1
  %sums.high.2.1.to = getelementptr float, ptr %sums.high.sums, i64 112
  store <16 x float> %sums.high.2.1, ptr %sums.high.2.1.to, align 4
  %sums.high.2.2 = load <16 x float>, ptr %sum.2.2
  %sums.high.2.2.to = getelementptr float, ptr %sums.high.sums, i64 128
  store <16 x float> %sums.high.2.2, ptr %sums.high.2.2.to, align 4
  %sums.high.3.0 = load <16 x float>, ptr %sum.3.0
  %sums.high.3.0.to = getelementptr float, ptr %sums.high.sums, i64 144
  store <16 x float> %sums.high.3.0, ptr %sums.high.3.0.to, align 4
  %sums.high.3.1 = load <16 x float>, ptr %sum.3.1
  %sums.high.3.1.to = getelementptr float, ptr %sums.high.sums, i64 160
  store <16 x float> %sums.high.3.1, ptr %sums.high.3.1.to, align 4
  %sums.high.3.2 = load <16 x float>, ptr %sum.3.2
  %sums.high.3.2.to = getelementptr float, ptr %sums.high.sums, i64 176
  store <16 x float> %sums.high.3.2, ptr %sums.high.3.2.to, align 4
  %sums.high.4.0 = load <16 x float>, ptr %sum.4.0
  %sums.high.4.0.to = getelementptr float, ptr %sums.high.sums, i64 192
  store <16 x float> %sums.high.4.0, ptr %sums.high.4.0.to, align 4
  %sums.high.4.1 = load <16 x float>, ptr %sum.4.1
  %sums.high.4.1.to = getelementptr float, ptr %sums.high.sums, i64 208
  store <16 x float> %sums.high.4.1, ptr %sums.high.4.1.to, align 4
  %sums.high.4.2 = load <16 x float>, ptr %sum.4.2
  %sums.high.4.2.to = getelementptr float, ptr %sums.high.sums, i64 224
  store <16 x float> %sums.high.4.2, ptr %sums.high.4.2.to, align 4
  %sums.high.5.0 = load <16 x float>, ptr %sum.5.0
  %sums.high.5.0.to = getelementptr float, ptr %sums.high.sums, i64 240
  store <16 x float> %sums.high.5.0, ptr %sums.high.5.0.to, align 4
  %sums.high.5.1 = load <16 x float>, ptr %sum.5.1
  %sums.high.5.1.to = getelementptr float, ptr %sums.high.sums, i64 256
  store <16 x float> %sums.high.5.1, ptr %sums.high.5.1.to, align 4
  %sums.high.5.2 = load <16 x float>, ptr %sum.5.2
  %sums.high.5.2.to = getelementptr float, ptr %sums.high.sums, i64 272
  store <16 x float> %sums.high.5.2, ptr %sums.high.5.2.to, align 4
  %sums.high.6.0 = load <16 x float>, ptr %sum.6.0
  %sums.high.6.0.to = getelementptr float, ptr %sums.high.sums, i64 288
  store <16 x float> %sums.high.6.0, ptr %sums.high.6.0.to, align 4
  %sums.high.6.1 = load <16 x float>, ptr %sum.6.1
  %sums.high.6.1.to = getelementptr float, ptr %sums.high.sums, i64 304
  store <16 x float> %sums.high.6.1, ptr %sums.high.6.1.to, align 4
  %sums.high.6.2 = load <16 x float>, ptr %sum.6.2
  %sums.high.6.2.to = getelementptr float, ptr %sums.high.sums, i64 320
  store <16 x float> %sums.high.6.2, ptr %sums.high.6.2.to, align 4
  %sums.high.7.0 = load <16 x float>, ptr %sum.7.0
  %sums.high.7.0.to = getelementptr float, ptr %sums.high.sums, i64 336
  store <16 x float> %sums.high.7.0, ptr %sums.high.7.0.to, align 4
  %sums.high.7.1 = load <16 x float>, ptr %sum.7.1
  %sums.high.7.1.to = getelementptr float, ptr %sums.high.sums, i64 352
  store <16 x float> %sums.high.7.1, ptr %sums.high.7.1.to, align 4
  %sums.high.7.2 = load <16 x float>, ptr %sum.7.2
  %sums.high.7.2.to = getelementptr float, ptr %sums.high.sums, i64 368
  store <16 x float> %sums.high.7.2, ptr %sums.high.7.2.to, align 4
  br label %sums.high.no
sums.high.no:
  br i1 %sums.few, label %sums.low.yes, label %sums.low.no
sums.low.yes:
  br label %sums.low.r0.enter
sums.low.r0.enter:
  br label %sums.low.r0.test
sums.low.r0.test:
  %sums.low.r0 = phi i64 [ 0, %sums.low.r0.enter ], [ %sums.low.r0.next, %sums.low.r0.again ]
  %sums.low.r0.more = icmp slt i64 %sums.low.r0, %tile.rows
  br i1 %sums.low.r0.more, label %sums.low.r0.body, label %sums.low.r0.end
sums.low.r0.body:
  %sums.low.place = mul i64 %sums.low.r0, 48
  %sums.low.sums = getelementptr float, ptr %sums, i64 %sums.low.place
  store <16 x float> zeroinitializer, ptr %sum.0.0
  store <16 x float> zeroinitializer, ptr %sum.0.1
  store <16 x float> zeroinitializer, ptr %sum.0.2
  %sums.low.m0 = add i64 %tile.first, %sums.low.r0
  %sums.low.row0 = mul i64 %sums.low.m0, %step
  %sums.low.a0 = getelementptr float, ptr %a, i64 %sums.low.row0
  br label %sums.low.k.enter
sums.low.k.enter:
  br label %sums.low.k.test
sums.low.k.test:
  %sums.low.k = phi i64 [ 0, %sums.low.k.enter ], [ %sums.low.k.next, %sums.low.k.again ]
  %sums.low.k.more = icmp slt i64 %sums.low.k, %depth
  br i1 %sums.low.k.more, label %sums.low.k.body, label %sums.low.k.end
sums.low.k.body:
  %sums.low.across = mul i64 %sums.low.k, 48
  %sums.low.panel = getelementptr float, ptr %panel, i64 %sums.low.across
  %sums.low.b0.at = getelementptr float, ptr %sums.low.panel, i64 0
  %sums.low.b0 = load <16 x float>, ptr %sums.low.b0.at, align 4
  %sums.low.b1.at = getelementptr float, ptr %sums.low.panel, i64 16
  %sums.low.b1 = load <16 x float>, ptr %sums.low.b1.at, align 4
  %sums.low.b2.at = getelementptr float, ptr %sums.low.panel, i64 32
  %sums.low.b2 = load <16 x float>, ptr %sums.low.b2.at, align 4
  %sums.low.x0.at = getelementptr float, ptr %sums.low.a0, i64 %sums.low.k
  %sums.low.x0 = load float, ptr %sums.low.x0.at, align 4
  %sums.low.x0.0 = insertelement <16 x float> poison, float %sums.low.x0, i64 0
  %sums.low.x0.all = shufflevector <16 x float> %sums.low.x0.0, <16 x float> poison, <16 x i32> zeroinitializer
  %sums.low.s0.0.before = load <16 x float>, ptr %sum.0.0
  %sums.low.s0.0.product = fmul contract <16 x float> %sums.low.x0.all, %sums.low.b0
  %sums.low.s0.0 = fadd contract <16 x float> %sums.low.s0.0.before, %sums.low.s0.0.product
  store <16 x float> %sums.low.s0.0, ptr %sum.0.0
  %sums.low.s0.1.before = load <16 x float>, ptr %sum.0.1
  %sums.low.s0.1.product = fmul contract <16 x float> %sums.low.x0.all, %sums.low.b1
  %sums.low.s0.1 = fadd contract <16 x float> %sums.low.s0.1.before, %sums.low.s0.1.product
  store <16 x float> %sums.low.s0.1, ptr %sum.0.1
  %sums.low.s0.2.before = load <16 x float>, ptr %sum.0.2
  %sums.low.s0.2.product = fmul contract <16 x float> %sums.low.x0.all, %sums.low.b2
  %sums.low.s0.2 = fadd contract <16 x float> %sums.low.s0.2.before, %sums.low.s0.2.product
  store <16 x float> %sums.low.s0.2, ptr %sum.0.2
  br label %sums.low.k.again
sums.low.k.again:
  %sums.low.k.next = add i64 %sums.low.k, 1
  br label %sums.low.k.test
sums.low.k.end:
  %sums.low.0.0 = load <16 x float>, ptr %sum.0.0
  %sums.low.0.0.to = getelementptr float, ptr %sums.low.sums, i64 0
  store <16 x float> %sums.low.0.0, ptr %sums.low.0.0.to, align 4
  %sums.low.0.1 = load <16 x float>, ptr %sum.0.1
  %sums.low.0.1.to = getelementptr float, ptr %sums.low.sums, i64 16
  store <16 x float> %sums.low.0.1, ptr %sums.low.0.1.to, align 4
  %sums.low.0.2 = load <16 x float>, ptr %sum.0.2
  %sums.low.0.2.to = getelementptr float, ptr %sums.low.sums, i64 32
  store <16 x float> %sums.low.0.2, ptr %sums.low.0.2.to, align 4
  br label %sums.low.r0.again
sums.low.r0.again:
  %sums.low.r0.next = add i64 %sums.low.r0, 1
  br label %sums.low.r0.test
sums.low.r0.end:
  br label %sums.low.no
sums.low.no:
  br label %out.row.enter
out.row.enter:
  br label %out.row.test
out.row.test:
  %out.row = phi i64 [ 0, %out.row.enter ], [ %out.row.next, %out.row.again ]
  %out.row.more = icmp slt i64 %out.row, %tile.rows
  br i1 %out.row.more, label %out.row.body, label %out.row.end
out.row.body:
  %m = add i64 %tile.first, %out.row
  %out.from = mul i64 %out.row, 48
  %out.sums = getelementptr float, ptr %sums, i64 %out.from
  %out.at.last16 = sub i64 %high, 15
  br label %out.at.16.enter
out.at.16.enter:
  br label %out.at.16.test
out.at.16.test:
  %out.at.16 = phi i64 [ %low, %out.at.16.enter ], [ %out.at.16.next, %out.at.16.again ]
  %out.at.16.more = icmp slt i64 %out.at.16, %out.at.last16
  br i1 %out.at.16.more, label %out.at.16.body, label %out.at.16.end
out.at.16.body:
  %out.at.16.in = sub i64 %out.at.16, %low
  %out.of16.acc.at = getelementptr float, ptr %out.sums, i64 %out.at.16.in
  %out.of16.acc = load <16 x float>, ptr %out.of16.acc.at, align 4
  %v9 = getelementptr float, ptr %p2, i64 %out.at.16
  %v10 = load <16 x float>, ptr %v9, align 4
  %v11 = fadd contract <16 x float> %out.of16.acc, %v10
  %v12 = call <16 x float> @t_max_of_floats_f32x16(<16 x float> %v11, <16 x float> splat (float 0x0000000000000000))
  %v13 = mul i64 37, %m
  %v14 = add i64 %v13, %out.at.16
  %v15 = getelementptr float, ptr %p3, i64 %v14
  store <16 x float> %v12, ptr %v15, align 4
  br label %out.at.16.again
out.at.16.again:
  %out.at.16.next = add i64 %out.at.16, 16
  br label %out.at.16.test
out.at.16.end:
  %out.at.last1 = sub i64 %high, 0
  br label %out.at.1.enter
out.at.1.enter:
  br label %out.at.1.test
out.at.1.test:
  %out.at.1 = phi i64 [ %out.at.16, %out.at.1.enter ], [ %out.at.1.next, %out.at.1.again ]
  %out.at.1.more = icmp slt i64 %out.at.1, %out.at.last1
  br i1 %out.at.1.more, label %out.at.1.body, label %out.at.1.end
out.at.1.body:
  %out.at.1.in = sub i64 %out.at.1, %low
  %out.of1.acc.at = getelementptr float, ptr %out.sums, i64 %out.at.1.in
  %out.of1.acc = load float, ptr %out.of1.acc.at, align 4
  %v16 = getelementptr float, ptr %p2, i64 %out.at.1
  %v17 = load float, ptr %v16, align 4
  %v18 = fadd contract float %out.of1.acc, %v17
  %v19 = call float @t_max_of_floats_f32x1(float %v18, float 0x0000000000000000)
  %v20 = mul i64 37, %m
  %v21 = add i64 %v20, %out.at.1
  %v22 = getelementptr float, ptr %p3, i64 %v21
  store float %v19, ptr %v22, align 4
  br label %out.at.1.again
out.at.1.again:
  %out.at.1.next = add i64 %out.at.1, 1
  br label %out.at.1.test
out.at.1.end:
  br label %out.row.again
out.row.again:
  %out.row.next = add i64 %out.row, 1
  br label %out.row.test
out.row.end:
  br label %t.again
t.again:
  %t.next = add i64 %t, 1
  br label %t.test
t.end:
  br label %p.again
p.again:
  %p.next = add i64 %p, 1
  br label %p.test
p.end:
  br label %task.again
task.again:
  %task.next = add i64 %task, 1
  br label %task.test
task.end:
  ret void
}
; The first of two equal ones; NaN where either is.
define internal <16 x float> @t_max_of_floats_f32x16(<16 x float> %a, <16 x float> %b) alwaysinline {
  %fits = fcmp oge <16 x float> %a, %b
  %nan = fcmp uno <16 x float> %a, %a
  %first = or <16 x i1> %fits, %nan
  %r = select <16 x i1> %first, <16 x float> %a, <16 x float> %b
  ret <16 x float> %r
}
; The first of two equal ones; NaN where either is.
define internal float @t_max_of_floats_f32x1(float %a, float %b) alwaysinline {
  %fits = fcmp oge float %a, %b
  %nan = fcmp uno float %a, %a
  %first = or i1 %fits, %nan
  %r = select i1 %first, float %a, float %b
  ret float %r
}
