@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let tid = i32(thread);
    let block = i32(group.y * 65535u + group.x);

    let rows = 1;
    let row = block % rows;
    let point = block / rows;
    let i0 = point;
    let keys_seen = 33;
    for (var d = tid; d < 16; d += 64) {
        query[d] = b0[((16 * i0) + row * 16 + d)];
    }
    var maximum = -t_inf();
    var total = 0.0f;
    var sum = array<f32, 1>();
    for (var start = 0; start < keys_seen; start += 64) {
        workgroupBarrier();
        let key = start + tid;
        var score = -t_inf();
        if (key < keys_seen) {
            score = 0.0f;
            for (var d = 0; d < 16; d++) {
                score += query[d] * b1[((528 * i0) + key * 16 + d)];
            }

            score = score;
        }
        let high = t_max_f32(maximum, t_ordered_f32(t_all_max_u32(t_order_max_f32(score), tid)));
        let base = select(high, 0.0f, t_isinf_f32(high) && high < 0.0f); /* nothing seen: weights of 0 */
        let factor = t_exp_f32(maximum - base);
        maximum = high;
        scores[tid] = t_exp_f32(score - base);
        total = total * factor + t_all_add_f32(scores[tid], tid);
        {
            let col = tid;
            if (col < 8) {
                var x = sum[0] * factor;
                for (var i = 0; i < min(64, keys_seen - start); i++) {
                    x += scores[i] * b2[((264 * i0) + (start + i) * 8 + col)];
                }
                sum[0] = x;
            }
        }
    }
    /* Keys that are all hidden leave 0 / 0. */
    let inverse = 1.0f / total;
    {
        let col = tid;
        if (col < 8) {
            let acc = sum[0] * inverse;
            b3[(col + 8 * i0)] = acc;
        }
    }
}

var<workgroup> scores: array<f32, 64>;
var<workgroup> query: array<f32, 16>;
@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<f32>;
@group(0) @binding(3) var<storage, read_write> b3: array<f32>;

var<private> t_inf_bits = 0x7f800000u;
fn t_inf() -> f32 { return bitcast<f32>(t_inf_bits); }

fn t_order_max_f32(x: f32) -> u32 {
    let v0 = bitcast<u32>(x);
    let v1 = select((v0 ^ select(2147483648u, 4294967295u, (v0 > 2147483647u))), 4294967295u, t_isnan_f32(x));
    return v1;
}

fn t_all_max_u32(x: u32, tid: i32) -> u32 {
    t_shared_u32[tid] = x;
    for (var half = 64 / 2; half > 0; half /= 2) {
        workgroupBarrier();
        if (tid < half) { t_shared_u32[tid] = max(t_shared_u32[tid], t_shared_u32[tid + half]); }
    }
    return workgroupUniformLoad(&t_shared_u32[0]);
}

fn t_ordered_f32(x: u32) -> f32 {
    return bitcast<f32>((x ^ select(4294967295u, 2147483648u, (x > 2147483647u))));
}

fn t_max_f32(x: f32, y: f32) -> f32 {
    return select(y, x, ((x >= y) || t_isnan_f32(x)));
}

fn t_isinf_f32(x: f32) -> bool {
    return ((bitcast<u32>(x) & 2147483647u) == 2139095040u);
}

fn t_exp_f32(x: f32) -> f32 {
    let v0 = select(x, -104.5f, (x < -104.5f));
    let v1 = select(v0, 90.0f, (v0 > 90.0f));
    let v2 = round((v1 * 1.4426950408889634f));
    let v3 = bitcast<u32>((i32(v2) + 254));
    let v4 = v3 >> 1u;
    let v5 = bitcast<f32>((v4 << 23u));
    let v6 = (v1 - (v2 * 0.693359375f)) - (v2 * -0.00021219444005469057f);
    let v7 = v6 * v6;
    let v8 = ((v7 * 0.001381893875f) + ((v6 * 0.008368703537f) + 0.04166828841f)) * v7;
    let v9 = ((v5 * (v6 + ((v8 + ((v6 * 0.1666652113f) + 0.4999999404f)) * v7))) + v5) * bitcast<f32>(((v3 - v4) << 23u));
    return select(v9, x, t_isnan_f32(x));
}

fn t_all_add_f32(x: f32, tid: i32) -> f32 {
    t_shared_f32[tid] = x;
    for (var half = 64 / 2; half > 0; half /= 2) {
        workgroupBarrier();
        if (tid < half) { t_shared_f32[tid] = t_shared_f32[tid] + t_shared_f32[tid + half]; }
    }
    return workgroupUniformLoad(&t_shared_f32[0]);
}

fn t_isnan_f32(x: f32) -> bool {
    return ((bitcast<u32>(x) & 2147483647u) > 2139095040u);
}

var<workgroup> t_shared_u32: array<u32, 64>;

var<workgroup> t_shared_f32: array<f32, 64>;
