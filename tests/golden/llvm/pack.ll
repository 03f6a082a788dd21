define void @ka3eee028386a(ptr %buf, ptr %dim, ptr %scratch, i64 %begin, i64 %end) {
entry:
  %a0 = getelementptr ptr, ptr %buf, i64 0
  %p0 = load ptr, ptr %a0, align 8
  %a1 = getelementptr ptr, ptr %buf, i64 1
  %p1 = load ptr, ptr %a1, align 8
  %panels = bitcast i64 2 to i64
  %depth = bitcast i64 70 to i64
  %width = bitcast i64 90 to i64
  %down = bitcast i64 90 to i64
  %right = bitcast i64 1 to i64
  br label %task.enter
task.enter:
  br label %task.test
task.test:
  %task = phi i64 [ %begin, %task.enter ], [ %task.next, %task.again ]
  %task.more = icmp slt i64 %task, %end
  br i1 %task.more, label %task.body, label %task.end
task.body:
  %panel = urem i64 %task, %panels
  %matrix = udiv i64 %task, %panels
  %matrices = getelementptr float, ptr %p0, i64 0
  %packed = getelementptr float, ptr %p1, i64 0
  %low = mul i64 %panel, 48
  %from.low = mul i64 %low, %right
  %source = getelementptr float, ptr %matrices, i64 %from.low
  %to.low = mul i64 %low, %depth
  %target = getelementptr float, ptr %packed, i64 %to.low
  %left = sub i64 %width, %low
  %count = call i64 @llvm.smin(i64 %left, i64 48)
  br label %row.enter
row.enter:
  br label %row.test
row.test:
  %row = phi i64 [ 0, %row.enter ], [ %row.next, %row.again ]
  %row.more = icmp slt i64 %row, %depth
  br i1 %row.more, label %row.body, label %row.end
row.body:
  %row.from = mul i64 %row, %down
  %from = getelementptr float, ptr %source, i64 %row.from
  %row.to = mul i64 %row, 48
  %to = getelementptr float, ptr %target, i64 %row.to
  %c.last16 = sub i64 %count, 15
  br label %c.16.enter
c.16.enter:
  br label %c.16.test
c.16.test:
  %c.16 = phi i64 [ 0, %c.16.enter ], [ %c.16.next, %c.16.again ]
  %c.16.more = icmp slt i64 %c.16, %c.last16
  br i1 %c.16.more, label %c.16.body, label %c.16.end
c.16.body:
  %c.16.place = mul i64 %c.16, %right
  %item16.at = getelementptr float, ptr %from, i64 %c.16.place
  %item16 = load <16 x float>, ptr %item16.at, align 4
  %item16.to = getelementptr float, ptr %to, i64 %c.16
  store <16 x float> %item16, ptr %item16.to, align 4
  br label %c.16.again
c.16.again:
  %c.16.next = add i64 %c.16, 16
  br label %c.16.test
c.16.end:
  %c.last1 = sub i64 %count, 0
  br label %c.1.enter
c.1.enter:
  br label %c.1.test
c.1.test:
  %c.1 = phi i64 [ %c.16, %c.1.enter ], [ %c.1.next, %c.1.again ]
  %c.1.more = icmp slt i64 %c.1, %c.last1
  br i1 %c.1.more, label %c.1.body, label %c.1.end
c.1.body:
  %c.1.place = mul i64 %c.1, %right
  %item1.at = getelementptr float, ptr %from, i64 %c.1.place
  %item1 = load float, ptr %item1.at, align 4
  %item1.to = getelementptr float, ptr %to, i64 %c.1
  store float %item1, ptr %item1.to, align 4
  br label %c.1.again
c.1.again:
  %c.1.next = add i64 %c.1, 1
  br label %c.1.test
c.1.end:
  br label %rest.enter
rest.enter:
  br label %rest.test
rest.test:
  %rest = phi i64 [ %count, %rest.enter ], [ %rest.next, %rest.again ]
  %rest.more = icmp slt i64 %rest, 48
  br i1 %rest.more, label %rest.body, label %rest.end
rest.body:
  %rest.to = getelementptr float, ptr %to, i64 %rest
  store float 0.0, ptr %rest.to, align 4
  br label %rest.again
rest.again:
  %rest.next = add i64 %rest, 1
  br label %rest.test
rest.end:
  br label %row.again
row.again:
  %row.next = add i64 %row, 1
  br label %row.test
row.end:
  br label %task.again
task.again:
  %task.next = add i64 %task, 1
  br label %task.test
task.end:
  ret void
}
