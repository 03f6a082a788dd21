define void @k266a80a6427c(ptr %buf, ptr %dim, ptr %scratch, i64 %begin, i64 %end) {
entry:
  %a0 = getelementptr ptr, ptr %buf, i64 0
  %p0 = load ptr, ptr %a0, align 8
  %a1 = getelementptr ptr, ptr %buf, i64 1
  %p1 = load ptr, ptr %a1, align 8
  %before.key = alloca i64
  %before.place = alloca i64
  %best.key = alloca i64
  %best.place = alloca i64
  %size = bitcast i64 19 to i64
  %wanted = bitcast i64 3 to i64
  %rows = bitcast i64 862 to i64
  %count = bitcast i64 3 to i64
  br label %task.enter
task.enter:
  br label %task.test
task.test:
  %task = phi i64 [ %begin, %task.enter ], [ %task.next, %task.again ]
  %task.more = icmp slt i64 %task, %end
  br i1 %task.more, label %task.body, label %task.end
task.body:
  %first = mul i64 %task, %rows
  %full = add i64 %first, %rows
  %last = call i64 @llvm.smin(i64 %full, i64 %count)
  br label %point.enter
point.enter:
  br label %point.test
point.test:
  %point = phi i64 [ %first, %point.enter ], [ %point.next, %point.again ]
  %point.more = icmp slt i64 %point, %last
  br i1 %point.more, label %point.body, label %point.end
point.body:
  store i64 0, ptr %before.key
  store i64 -1, ptr %before.place
  br label %rank.enter
rank.enter:
  br label %rank.test
rank.test:
  %rank = phi i64 [ 0, %rank.enter ], [ %rank.next, %rank.again ]
  %rank.more = icmp slt i64 %rank, %wanted
  br i1 %rank.more, label %rank.body, label %rank.end
rank.body:
  %key.before = load i64, ptr %before.key
  %place.before = load i64, ptr %before.place
  %is.first = icmp eq i64 %place.before, -1
  store i64 0, ptr %best.key
  store i64 -1, ptr %best.place
  br label %place.enter
place.enter:
  br label %place.test
place.test:
  %place = phi i64 [ 0, %place.enter ], [ %place.next, %place.again ]
  %place.more = icmp slt i64 %place, %size
  br i1 %place.more, label %place.body, label %place.end
place.body:
  %v1 = mul i64 19, %point
  %v2 = add i64 %v1, %place
  %v3 = getelementptr float, ptr %p0, i64 %v2
  %v4 = load float, ptr %v3, align 4
  %v5 = call i32 @t_order_of_floats_f32x1(float %v4)
  %v6 = sext i32 %v5 to i64
  %order = bitcast i64 %v6 to i64
  %key = xor i64 %order, 0
  ; behind the one before: lower, or equal and further on
  %lower = icmp slt i64 %key, %key.before
  %equal = icmp eq i64 %key, %key.before
  %further = icmp sgt i64 %place, %place.before
  %next = and i1 %equal, %further
  %behind = or i1 %lower, %next
  %open = or i1 %is.first, %behind
  ; before the best until now
  %key.best = load i64, ptr %best.key
  %place.best = load i64, ptr %best.place
  %higher = icmp sgt i64 %key, %key.best
  %none = icmp eq i64 %place.best, -1
  %better = or i1 %higher, %none
  %take = and i1 %open, %better
  %key.taken = select i1 %take, i64 %key, i64 %key.best
  %place.taken = select i1 %take, i64 %place, i64 %place.best
  store i64 %key.taken, ptr %best.key
  store i64 %place.taken, ptr %best.place
  br label %place.again
place.again:
  %place.next = add i64 %place, 1
  br label %place.test
place.end:
  %key.found = load i64, ptr %best.key
  %found = load i64, ptr %best.place
  store i64 %key.found, ptr %before.key
  store i64 %found, ptr %before.place
  %v7 = mul i64 19, %point
  %v8 = add i64 %v7, %found
  %v9 = getelementptr float, ptr %p0, i64 %v8
  %v10 = load float, ptr %v9, align 4
  %v11 = mul i64 3, %point
  %v12 = add i64 %v11, %rank
  %v13 = getelementptr float, ptr %p1, i64 %v12
  store float %v10, ptr %v13, align 4
  br label %rank.again
rank.again:
  %rank.next = add i64 %rank, 1
  br label %rank.test
rank.end:
  br label %point.again
point.again:
  %point.next = add i64 %point, 1
  br label %point.test
point.end:
  br label %task.again
task.again:
  %task.next = add i64 %task, 1
  br label %task.test
task.end:
  ret void
}
define internal i32 @t_order_of_floats_f32x1(float %x) alwaysinline {
  %none = fcmp oeq float %x, 0x0000000000000000
  %plain = select i1 %none, float 0x0000000000000000, float %x
  %bits = bitcast float %plain to i32
  %most = lshr i32 -1, 1
  %turned = xor i32 %bits, %most
  %negative = icmp slt i32 %bits, 0
  %order = select i1 %negative, i32 %turned, i32 %bits
  %nan = fcmp uno float %x, %x
  %r = select i1 %nan, i32 %most, i32 %order
  ret i32 %r
}
