@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let tid = i32(thread);
    let block = i32(group.y * 65535u + group.x);
    if (block >= params[0].x) { return; }
    let s0 = params[0].y;
    let point = block * 64 + tid;
    if (point >= (13 * s0)) { return; }
    let i1 = point % 13;
    var point_rest = point / 13;
    let i0 = point_rest;
    let v0 = t_sigmoid_f32(b1[((13 * i0) + i1)]) * b0[i1];
    b2[((13 * i0) + i1)] = v0;
}

@group(0) @binding(0) var<storage, read> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<f32>;
@group(0) @binding(3) var<uniform> params: array<vec4i, 1>;

fn t_sigmoid_f32(x: f32) -> f32 {
    let e = t_exp_f32(-abs(x));
    return select(1.0f, e, x < 0.0f) / (1.0f + e);
}

fn t_exp_f32(x: f32) -> f32 {
    if (t_isnan_f32(x)) { return x; }
    let c = clamp(x, -104.0f, 89.0f);
    let k = round(c * 1.44269504f);
    let r = (c - k * 0.693359375f) + k * 2.12194440e-4f;
    return t_scale_(1.0f + (r + t_exp_tail_(r)), i32(k));
}

fn t_isnan_f32(x: f32) -> bool { return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u; }

fn t_scale_(x: f32, n: i32) -> f32 { return x * t_pow2_(n >> 1u) * t_pow2_(n - (n >> 1u)); }

fn t_exp_tail_(r: f32) -> f32 {
    let z = r * r;
    let p01 = r * 1.666652113e-1f + 4.999999404e-1f;
    let p23 = r * 8.368703537e-3f + 4.166828841e-2f;
    return ((z * 1.381893875e-3f + p23) * z + p01) * z;
}

fn t_pow2_(n: i32) -> f32 { return bitcast<f32>(u32(n + 127) << 23u); }
