var<workgroup> a_tile: array<vec4f, 80>;
var<workgroup> b_tile: array<vec4f, 144>;

@compute @workgroup_size(32)
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
    let tid = i32(thread);
    let block = i32(group.y * 65535u + group.x);
    if (block >= params[0].x) { return; }
    let s0 = params[0].y;
    let rows = s0;
    let columns = 37;
    let tiles_m = (rows + 15) / 16;
    let tiles_n = (columns + 31) / 32;
    let tile_n = block % tiles_n;
    let tile_m = block / tiles_n % tiles_m;
    let warp = tid / 32;
    let first_row = warp * 16 + tid % 32 / 8 * 4;
    let first_column = tid % 8 * 4;
    let a_k0 = tid % 16;
    let a_line0 = tid / 16;
    let line_a_0_0 = tile_m * 16 + a_line0 * 4;
    let m0_a_0_0 = line_a_0_0;
    let at_a_0_0 = (29 * m0_a_0_0);
    let line_a_0_1 = tile_m * 16 + a_line0 * 4 + 1;
    let m0_a_0_1 = line_a_0_1;
    let at_a_0_1 = (29 * m0_a_0_1);
    let line_a_0_2 = tile_m * 16 + a_line0 * 4 + 2;
    let m0_a_0_2 = line_a_0_2;
    let at_a_0_2 = (29 * m0_a_0_2);
    let line_a_0_3 = tile_m * 16 + a_line0 * 4 + 3;
    let m0_a_0_3 = line_a_0_3;
    let at_a_0_3 = (29 * m0_a_0_3);
    let a_k1 = (tid + 32) % 16;
    let a_line1 = (tid + 32) / 16;
    let line_a_1_0 = tile_m * 16 + a_line1 * 4;
    let m0_a_1_0 = line_a_1_0;
    let at_a_1_0 = (29 * m0_a_1_0);
    let line_a_1_1 = tile_m * 16 + a_line1 * 4 + 1;
    let m0_a_1_1 = line_a_1_1;
    let at_a_1_1 = (29 * m0_a_1_1);
    let line_a_1_2 = tile_m * 16 + a_line1 * 4 + 2;
    let m0_a_1_2 = line_a_1_2;
    let at_a_1_2 = (29 * m0_a_1_2);
    let line_a_1_3 = tile_m * 16 + a_line1 * 4 + 3;
    let m0_a_1_3 = line_a_1_3;
    let at_a_1_3 = (29 * m0_a_1_3);
    let b_k0 = tid / 8;
    let b_line0 = tid % 8;
    let line_b_0_0 = tile_n * 32 + b_line0 * 4;
    let n0_b_0_0 = line_b_0_0;
    let at_b_0_0 = n0_b_0_0;
    let b_k1 = (tid + 32) / 8;
    let b_line1 = (tid + 32) % 8;
    let line_b_1_0 = tile_n * 32 + b_line1 * 4;
    let n0_b_1_0 = line_b_1_0;
    let at_b_1_0 = n0_b_1_0;
    let b_k2 = (tid + 64) / 8;
    let b_line2 = (tid + 64) % 8;
    let line_b_2_0 = tile_n * 32 + b_line2 * 4;
    let n0_b_2_0 = line_b_2_0;
    let at_b_2_0 = n0_b_2_0;
    let b_k3 = (tid + 96) / 8;
    let b_line3 = (tid + 96) % 8;
    let line_b_3_0 = tile_n * 32 + b_line3 * 4;
    let n0_b_3_0 = line_b_3_0;
    let at_b_3_0 = n0_b_3_0;
    var sum0_0 = vec4f();
    var sum1_0 = vec4f();
    var sum2_0 = vec4f();
    var sum3_0 = vec4f();
    let steps = 2;
    let first = 0;
    let last = steps;
    for (var s = first; s < last; s++) {
        let at_k = s * 16;
        {
            let place = at_k + a_k0;
            let k0 = place;
            let step = k0;
            var whole = vec4f();
            if (place < 29) {
                if (line_a_0_0 < rows) {
                    whole.x = b0[(at_a_0_0 + step)];
                }
                if (line_a_0_1 < rows) {
                    whole.y = b0[(at_a_0_1 + step)];
                }
                if (line_a_0_2 < rows) {
                    whole.z = b0[(at_a_0_2 + step)];
                }
                if (line_a_0_3 < rows) {
                    whole.w = b0[(at_a_0_3 + step)];
                }
            }
            a_tile[a_k0 * 5 + a_line0] = whole;
        }
        {
            let place = at_k + a_k1;
            let k0 = place;
            let step = k0;
            var whole = vec4f();
            if (place < 29) {
                if (line_a_1_0 < rows) {
                    whole.x = b0[(at_a_1_0 + step)];
                }
                if (line_a_1_1 < rows) {
                    whole.y = b0[(at_a_1_1 + step)];
                }
                if (line_a_1_2 < rows) {
                    whole.z = b0[(at_a_1_2 + step)];
                }
                if (line_a_1_3 < rows) {
                    whole.w = b0[(at_a_1_3 + step)];
                }
            }
            a_tile[a_k1 * 5 + a_line1] = whole;
        }
        {
            let place = at_k + b_k0;
            let k0 = place;
            let step = (40 * k0);
            var whole = vec4f();
            if (place < 29) {
                if (line_b_0_0 < columns) {
                    whole.x = b1[(at_b_0_0 + step)];
                    whole.y = b1[(at_b_0_0 + step + 1)];
                    whole.z = b1[(at_b_0_0 + step + 2)];
                    whole.w = b1[(at_b_0_0 + step + 3)];
                }
            }
            b_tile[b_k0 * 9 + b_line0] = whole;
        }
        {
            let place = at_k + b_k1;
            let k0 = place;
            let step = (40 * k0);
            var whole = vec4f();
            if (place < 29) {
                if (line_b_1_0 < columns) {
                    whole.x = b1[(at_b_1_0 + step)];
                    whole.y = b1[(at_b_1_0 + step + 1)];
                    whole.z = b1[(at_b_1_0 + step + 2)];
                    whole.w = b1[(at_b_1_0 + step + 3)];
                }
            }
            b_tile[b_k1 * 9 + b_line1] = whole;
        }
        {
            let place = at_k + b_k2;
            let k0 = place;
            let step = (40 * k0);
            var whole = vec4f();
            if (place < 29) {
                if (line_b_2_0 < columns) {
                    whole.x = b1[(at_b_2_0 + step)];
                    whole.y = b1[(at_b_2_0 + step + 1)];
                    whole.z = b1[(at_b_2_0 + step + 2)];
                    whole.w = b1[(at_b_2_0 + step + 3)];
                }
            }
            b_tile[b_k2 * 9 + b_line2] = whole;
        }
        {
            let place = at_k + b_k3;
            let k0 = place;
            let step = (40 * k0);
            var whole = vec4f();
            if (place < 29) {
                if (line_b_3_0 < columns) {
                    whole.x = b1[(at_b_3_0 + step)];
                    whole.y = b1[(at_b_3_0 + step + 1)];
                    whole.z = b1[(at_b_3_0 + step + 2)];
                    whole.w = b1[(at_b_3_0 + step + 3)];
                }
            }
            b_tile[b_k3 * 9 + b_line3] = whole;
        }
        workgroupBarrier();
        for (var at = 0; at < 16; at++) {
            let x0 = a_tile[at * 5 + first_row / 4];
            let y0 = b_tile[at * 9 + first_column / 4];
            sum0_0 += x0.x * y0;
            sum1_0 += x0.y * y0;
            sum2_0 += x0.z * y0;
            sum3_0 += x0.w * y0;
        }
        workgroupBarrier();
    }
    var sums = array<vec4f, 4>(sum0_0, sum1_0, sum2_0, sum3_0, );
    for (var i = 0; i < 4; i++) {
        let row = tile_m * 16 + first_row + i / 4 * 16 + i % 4;
        if (row >= rows) { continue; }
        let m0 = row;
        let column = tile_n * 32 + first_column;
        for (var j = 0; j < 4; j++) {
            let place = column + j;
            if (place >= columns) { continue; }
            let n0 = place;
            let v0 = t_max_f32((sums[i][j] + b2[n0]), 0.0f);
            b3[(37 * m0 + n0)] = v0;
        }
    }
}

@group(0) @binding(0) var<storage, read_write> b0: array<f32>;
@group(0) @binding(1) var<storage, read> b1: array<f32>;
@group(0) @binding(2) var<storage, read> b2: array<f32>;
@group(0) @binding(3) var<storage, read_write> b3: array<f32>;
@group(0) @binding(4) var<uniform> params: array<vec4i, 1>;

fn t_max_f32(x: f32, y: f32) -> f32 {
    return select(y, x, ((x >= y) || t_isnan_f32(x)));
}

fn t_isnan_f32(x: f32) -> bool {
    return ((bitcast<u32>(x) & 2147483647u) > 2139095040u);
}
