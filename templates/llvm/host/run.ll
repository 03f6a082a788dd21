; What runs the steps of a model in the process: no text of a model is in it, it is compiled once.
;
; A run gets the addresses of what buffers lie in (bases), and its steps as numbers, one behind the other:
;   kernel, tasks, tasks at a time (0: no other thread helps), dim, buffers, demands, then for each buffer and each
;   demanded flag the number of its base and its offset in bytes.
; A team is threads that take tasks of a kernel: in numbers of 8 bytes
;   0 next task, 1 tasks, 2 at a time, 3 kernel, 4 buf, 5 dim, 6 scratch, 7 bytes of scratch of a thread,
;   8 helpers, 9 taken (1 while a run uses it), 10 to 13 semaphore of those that are done,
;   from 16 on, 8 for each helper: its semaphore, its number, the team.

declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(i64)
declare i32 @sem_init(ptr, i32, i32)
declare i32 @sem_post(ptr)
declare i32 @sem_wait(ptr)

; Tasks of the step that a team is at, until there are none left.
define private void @take(ptr %team, i64 %me) {
entry:
  %p.tasks = getelementptr i64, ptr %team, i64 1
  %p.each = getelementptr i64, ptr %team, i64 2
  %p.kernel = getelementptr i64, ptr %team, i64 3
  %p.buf = getelementptr i64, ptr %team, i64 4
  %p.dim = getelementptr i64, ptr %team, i64 5
  %p.scratch = getelementptr i64, ptr %team, i64 6
  %p.size = getelementptr i64, ptr %team, i64 7
  %tasks = load i64, ptr %p.tasks
  %each = load i64, ptr %p.each
  %kernel = load ptr, ptr %p.kernel
  %buf = load ptr, ptr %p.buf
  %dim = load ptr, ptr %p.dim
  %all = load ptr, ptr %p.scratch
  %size = load i64, ptr %p.size
  %offset = mul i64 %size, %me
  %scratch = getelementptr i8, ptr %all, i64 %offset
  br label %next
next:
  %begin = atomicrmw add ptr %team, i64 %each seq_cst
  %some = icmp slt i64 %begin, %tasks
  br i1 %some, label %work, label %done
work:
  %far = add i64 %begin, %each
  %less = icmp slt i64 %far, %tasks
  %end = select i1 %less, i64 %far, i64 %tasks
  call void %kernel(ptr %buf, ptr %dim, ptr %scratch, i64 %begin, i64 %end)
  br label %next
done:
  ret void
}

define private ptr @help(ptr %own) {
entry:
  %p.me = getelementptr i64, ptr %own, i64 4
  %p.team = getelementptr i64, ptr %own, i64 5
  %me = load i64, ptr %p.me
  %team = load ptr, ptr %p.team
  %done = getelementptr i64, ptr %team, i64 10
  br label %wait
wait:
  %code = call i32 @sem_wait(ptr %own)
  %interrupted = icmp ne i32 %code, 0
  br i1 %interrupted, label %wait, label %work
work:
  call void @take(ptr %team, i64 %me)
  %0 = call i32 @sem_post(ptr %done)
  br label %wait
}

; Starts helpers; returns how many there are.
define i64 @t_team(ptr %team, i64 %count) {
entry:
  %thread = alloca i64
  %p.helpers = getelementptr i64, ptr %team, i64 8
  %done = getelementptr i64, ptr %team, i64 10
  %0 = call i32 @sem_init(ptr %done, i32 0, i32 0)
  br label %next
next:
  %k = phi i64 [ 0, %entry ], [ %more, %started ]
  store i64 %k, ptr %p.helpers
  %some = icmp slt i64 %k, %count
  br i1 %some, label %start, label %end
start:
  %more = add i64 %k, 1
  %slot = mul i64 %k, 8
  %at = add i64 %slot, 16
  %own = getelementptr i64, ptr %team, i64 %at
  %1 = call i32 @sem_init(ptr %own, i32 0, i32 0)
  %p.me = getelementptr i64, ptr %own, i64 4
  %p.team = getelementptr i64, ptr %own, i64 5
  store i64 %more, ptr %p.me
  store ptr %team, ptr %p.team
  %code = call i32 @pthread_create(ptr %thread, ptr null, ptr @help, ptr %own)
  %fails = icmp ne i32 %code, 0
  br i1 %fails, label %end, label %started
started:
  %id = load i64, ptr %thread
  %2 = call i32 @pthread_detach(i64 %id)
  br label %next
end:
  ret i64 %k
}

define private void @share(ptr %team, ptr %kernel, ptr %buf, ptr %dim, i64 %tasks, i64 %each) {
entry:
  %p.tasks = getelementptr i64, ptr %team, i64 1
  %p.each = getelementptr i64, ptr %team, i64 2
  %p.kernel = getelementptr i64, ptr %team, i64 3
  %p.buf = getelementptr i64, ptr %team, i64 4
  %p.dim = getelementptr i64, ptr %team, i64 5
  %p.helpers = getelementptr i64, ptr %team, i64 8
  %done = getelementptr i64, ptr %team, i64 10
  store i64 %tasks, ptr %p.tasks
  store i64 %each, ptr %p.each
  store ptr %kernel, ptr %p.kernel
  store ptr %buf, ptr %p.buf
  store ptr %dim, ptr %p.dim
  %helpers = load i64, ptr %p.helpers
  store atomic i64 0, ptr %team seq_cst, align 8
  br label %call
call:
  %k = phi i64 [ 0, %entry ], [ %k.next, %called ]
  %some = icmp slt i64 %k, %helpers
  br i1 %some, label %called, label %work
called:
  %slot = mul i64 %k, 8
  %at = add i64 %slot, 16
  %own = getelementptr i64, ptr %team, i64 %at
  %0 = call i32 @sem_post(ptr %own)
  %k.next = add i64 %k, 1
  br label %call
work:
  call void @take(ptr %team, i64 0)
  br label %wait
wait:
  %left = phi i64 [ %helpers, %work ], [ %left, %again ], [ %left.next, %one ]
  %any = icmp sgt i64 %left, 0
  br i1 %any, label %again, label %end
again:
  %code = call i32 @sem_wait(ptr %done)
  %interrupted = icmp ne i32 %code, 0
  br i1 %interrupted, label %wait, label %one
one:
  %left.next = sub i64 %left, 1
  br label %wait
end:
  ret void
}

; Runs steps; returns 0, or the number of the step, from 1, that made a flag which ends the run.
define i64 @t_run(ptr %bases, ptr %steps, i64 %count, ptr %buf, ptr %scratch, i64 %size, ptr %team) {
entry:
  %alone = icmp eq ptr %team, null
  br i1 %alone, label %start, label %ask
ask:
  %p.taken = getelementptr i64, ptr %team, i64 9
  %before = atomicrmw xchg ptr %p.taken, i64 1 seq_cst
  %free = icmp eq i64 %before, 0
  br i1 %free, label %lead, label %start
lead:
  %p.scratch = getelementptr i64, ptr %team, i64 6
  %p.size = getelementptr i64, ptr %team, i64 7
  store ptr %scratch, ptr %p.scratch
  store i64 %size, ptr %p.size
  br label %start
start:
  %leads = phi i1 [ false, %entry ], [ false, %ask ], [ true, %lead ]
  br label %step
step:
  %k = phi i64 [ 0, %start ], [ %k.next, %flagged ]
  %s = phi ptr [ %steps, %start ], [ %place, %flagged ]
  %some = icmp slt i64 %k, %count
  br i1 %some, label %read, label %end
read:
  %k.next = add i64 %k, 1
  %kernel = load ptr, ptr %s
  %p.tasks = getelementptr i64, ptr %s, i64 1
  %p.each = getelementptr i64, ptr %s, i64 2
  %p.dim = getelementptr i64, ptr %s, i64 3
  %p.buffers = getelementptr i64, ptr %s, i64 4
  %p.demands = getelementptr i64, ptr %s, i64 5
  %first = getelementptr i64, ptr %s, i64 6
  %tasks = load i64, ptr %p.tasks
  %each = load i64, ptr %p.each
  %dim = load ptr, ptr %p.dim
  %buffers = load i64, ptr %p.buffers
  %demands = load i64, ptr %p.demands
  %both = add i64 %buffers, %demands
  br label %point
point:
  %b = phi i64 [ 0, %read ], [ %b.next, %pointed ]
  %place = phi ptr [ %first, %read ], [ %place.next, %pointed ]
  %more = icmp slt i64 %b, %both
  br i1 %more, label %pointed, label %launch
pointed:
  %base = load i64, ptr %place
  %p.offset = getelementptr i64, ptr %place, i64 1
  %offset = load i64, ptr %p.offset
  %p.base = getelementptr ptr, ptr %bases, i64 %base
  %from = load ptr, ptr %p.base
  %address = getelementptr i8, ptr %from, i64 %offset
  %p.buf = getelementptr ptr, ptr %buf, i64 %b
  store ptr %address, ptr %p.buf
  %b.next = add i64 %b, 1
  %place.next = getelementptr i64, ptr %place, i64 2
  br label %point
launch:
  %worth = icmp sgt i64 %each, 0
  %shared = and i1 %worth, %leads
  br i1 %shared, label %together, label %by.itself
together:
  call void @share(ptr %team, ptr %kernel, ptr %buf, ptr %dim, i64 %tasks, i64 %each)
  br label %check
by.itself:
  call void %kernel(ptr %buf, ptr %dim, ptr %scratch, i64 0, i64 %tasks)
  br label %check
check:
  %d = phi i64 [ %buffers, %together ], [ %buffers, %by.itself ], [ %d.next, %look ]
  %flags = icmp slt i64 %d, %both
  br i1 %flags, label %look, label %flagged
look:
  %p.flag = getelementptr ptr, ptr %buf, i64 %d
  %p.byte = load ptr, ptr %p.flag
  %byte = load i8, ptr %p.byte
  %d.next = add i64 %d, 1
  %good = icmp eq i8 %byte, 0
  br i1 %good, label %check, label %end
flagged:
  br label %step
end:
  %status = phi i64 [ 0, %step ], [ %k.next, %look ]
  br i1 %leads, label %leave, label %out
leave:
  %p.free = getelementptr i64, ptr %team, i64 9
  store atomic i64 0, ptr %p.free seq_cst, align 8
  br label %out
out:
  ret i64 %status
}

; Runs steps on NumPy's arrays, whose layout is part of NumPy's ABI: behind the object's head lie
;   data, dimensions (i32, padded), sizes, strides, base, type, flags (i32).
; A call is, in numbers of 8 bytes,
;   0 arrays, 1 inputs, 2 inputs and outputs, 3 bytes of an object's head, 4 what is expected of inputs: for each its
;   type, how many dimensions it has, and these; 5 bases, 6 steps, 7 how many, 8 buf, 9 scratch, 10 its size, 11 team.
; Returns -1 when an input is not as expected, else what t_run does.
define i64 @t_call(ptr %call) {
entry:
  %p.inputs = getelementptr i64, ptr %call, i64 1
  %p.all = getelementptr i64, ptr %call, i64 2
  %p.head = getelementptr i64, ptr %call, i64 3
  %p.expected = getelementptr i64, ptr %call, i64 4
  %p.bases = getelementptr i64, ptr %call, i64 5
  %arrays = load ptr, ptr %call
  %inputs = load i64, ptr %p.inputs
  %all = load i64, ptr %p.all
  %head = load i64, ptr %p.head
  %expected = load ptr, ptr %p.expected
  %bases = load ptr, ptr %p.bases
  %own = getelementptr ptr, ptr %bases, i64 2
  br label %array
array:
  %k = phi i64 [ 0, %entry ], [ %k.next, %taken ]
  %e = phi ptr [ %expected, %entry ], [ %e.next, %taken ]
  %some = icmp slt i64 %k, %all
  br i1 %some, label %read, label %run
read:
  %p.array = getelementptr ptr, ptr %arrays, i64 %k
  %object = load ptr, ptr %p.array
  %body = getelementptr i8, ptr %object, i64 %head
  %data = load ptr, ptr %body
  %p.base = getelementptr ptr, ptr %own, i64 %k
  store ptr %data, ptr %p.base
  %k.next = add i64 %k, 1
  %given = icmp slt i64 %k, %inputs
  br i1 %given, label %look, label %taken
look:
  %p.rank = getelementptr i8, ptr %body, i64 8
  %p.sizes = getelementptr i8, ptr %body, i64 16
  %p.type = getelementptr i8, ptr %body, i64 40
  %p.flags = getelementptr i8, ptr %body, i64 48
  %rank.short = load i32, ptr %p.rank
  %rank = zext i32 %rank.short to i64
  %sizes = load ptr, ptr %p.sizes
  %type = load i64, ptr %p.type
  %flags = load i32, ptr %p.flags
  %want.type = load i64, ptr %e
  %p.want.rank = getelementptr i64, ptr %e, i64 1
  %want.rank = load i64, ptr %p.want.rank
  %wanted = getelementptr i64, ptr %e, i64 2
  %e.behind = getelementptr i64, ptr %wanted, i64 %want.rank
  %known = icmp eq i64 %type, %want.type
  %ranked = icmp eq i64 %rank, %want.rank
  ; in C's order and aligned
  %order = and i32 %flags, 257
  %ordered = icmp eq i32 %order, 257
  %both = and i1 %known, %ranked
  %fits = and i1 %both, %ordered
  br i1 %fits, label %dims, label %other
dims:
  %d = phi i64 [ 0, %look ], [ %d.next, %dim ]
  %more = icmp slt i64 %d, %rank
  br i1 %more, label %dim, label %taken
dim:
  %p.size = getelementptr i64, ptr %sizes, i64 %d
  %p.want = getelementptr i64, ptr %wanted, i64 %d
  %size = load i64, ptr %p.size
  %want = load i64, ptr %p.want
  %d.next = add i64 %d, 1
  %same = icmp eq i64 %size, %want
  br i1 %same, label %dims, label %other
taken:
  %e.next = phi ptr [ %e, %read ], [ %e.behind, %dims ]
  br label %array
run:
  %p.steps = getelementptr i64, ptr %call, i64 6
  %p.count = getelementptr i64, ptr %call, i64 7
  %p.buf = getelementptr i64, ptr %call, i64 8
  %p.scratch = getelementptr i64, ptr %call, i64 9
  %p.bytes = getelementptr i64, ptr %call, i64 10
  %p.team = getelementptr i64, ptr %call, i64 11
  %steps = load ptr, ptr %p.steps
  %count = load i64, ptr %p.count
  %buf = load ptr, ptr %p.buf
  %scratch = load ptr, ptr %p.scratch
  %bytes = load i64, ptr %p.bytes
  %team = load ptr, ptr %p.team
  %status = call i64 @t_run(ptr %bases, ptr %steps, i64 %count, ptr %buf, ptr %scratch, i64 %bytes, ptr %team)
  ret i64 %status
other:
  ret i64 -1
}
