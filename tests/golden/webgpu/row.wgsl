@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let tid = i32(thread);
    let block = i32(group.y * 65535u + group.x);
    if (block >= params[0].x) { return; }
    let s0 = params[0].y;
    let point = block * 64 + tid;
    if (point >= s0) { return; }
    let i0 = point;
    var a0 = -t_inf();
    for (var r0 = 0; r0 < 37; r0++) {
        let v0 = b0[(37 * i0 + r0)];
        a0 = t_max_f32(a0, v0);
    }
    var a1 = 0.0f;
    for (var r0 = 0; r0 < 37; r0++) {
        let v0 = t_exp_f32((b0[(37 * i0 + r0)] - a0));
        a1 = a1 + v0;
    }
    for (var r0 = 0; r0 < 37; r0++) {
        let v0 = t_exp_f32((b0[(37 * i0 + r0)] - a0)) * t_div_f32(1.0f, a1);
        b1[(37 * i0 + r0)] = v0;
    }
}

@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<uniform> params: array<vec4i, 1>;

var<private> t_inf_bits = 0x7f800000u;
fn t_inf() -> f32 { return bitcast<f32>(t_inf_bits); }

fn t_max_f32(x: f32, y: f32) -> f32 {
    return select(y, x, ((x >= y) || t_isnan_f32(x)));
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

fn t_div_f32(a: f32, b: f32) -> f32 {
    var q = a / b;
    if (!(abs(q) > 1e-18f && abs(q) < 1e18f && abs(b) > 1e-18f && abs(b) < 1e18f)) { return q; }
    for (var i = 0; i < 4; i++) {
        let places = u32(t_exponent(a) - t_exponent(q) - t_exponent(b) + 150);
        let rest = (t_significand(a) << places) - t_significand(q) * t_significand(b);
        let below = rest * select(2, 4, t_significand(q) == 0x800000) < -t_significand(b);
        let above = rest * 2 > t_significand(b);
        if (!(below || above)) { break; }
        q = bitcast<f32>(bitcast<i32>(q) + select(-1, 1, above));
    }
    return q;
}

fn t_isnan_f32(x: f32) -> bool {
    return ((bitcast<u32>(x) & 2147483647u) > 2139095040u);
}

fn t_significand(x: f32) -> i32 { return (bitcast<i32>(x) & 0x7fffff) | 0x800000; }

fn t_exponent(x: f32) -> i32 { return (bitcast<i32>(x) >> 23u) & 255; }
