@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let tid = i32(thread);
    let block = i32(group.y * 65535u + group.x);
    if (block >= params[0].x) { return; }
    let s0 = params[0].y;
    let packet = block * 64 + tid;
    if (packet >= (13 * s0)) { return; }
    let i1 = packet % 13;
    var packet_rest = packet / 13;
    let i0 = packet_rest;
    let v0 = t_sigmoid_f32(b1[(13 * i0 + i1)]) * b0[i1];
    b2[(13 * i0 + i1)] = v0;
}

@group(0) @binding(0) var<storage, read> b0: array<f32>;
@group(0) @binding(1) var<storage, read_write> b1: array<f32>;
@group(0) @binding(2) var<storage, read_write> b2: array<f32>;
@group(0) @binding(3) var<uniform> params: array<vec4i, 1>;

fn t_sigmoid_f32(x: f32) -> f32 {
    let v0 = select(x, -104.5f, (x < -104.5f));
    let v1 = -select(v0, 40.0f, (v0 > 40.0f));
    let v2 = round((v1 * 1.4426950408889634f));
    let v3 = bitcast<f32>((bitcast<u32>((i32(v2) + 63)) << 23u));
    let v4 = (v1 - (v2 * 0.693359375f)) - (v2 * -0.00021219444005469057f);
    let v5 = v4 * v4;
    let v6 = ((v5 * 0.001381893875f) + ((v4 * 0.008368703537f) + 0.04166828841f)) * v5;
    let v7 = ((v3 * (v4 + ((v6 + ((v4 * 0.1666652113f) + 0.4999999404f)) * v5))) + v3) + 5.421010862427522e-20f;
    return select((5.421010862427522e-20f / v7), x, t_isnan_f32(x));
}

fn t_isnan_f32(x: f32) -> bool {
    return ((bitcast<u32>(x) & 2147483647u) > 2139095040u);
}
