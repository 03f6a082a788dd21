/* The whole Metal prelude in one kernel. */
#include "t_metal.h"

#include "every.h"

kernel void every(device float *p_f32 [[buffer(0)]], device int8_t *p_i8 [[buffer(1)]],
                  device uint8_t *p_u8 [[buffer(2)]], device int16_t *p_i16 [[buffer(3)]],
                  device uint16_t *p_u16 [[buffer(4)]], device int32_t *p_i32 [[buffer(5)]],
                  device uint32_t *p_u32 [[buffer(6)]], device int64_t *p_i64 [[buffer(7)]],
                  device uint64_t *p_u64 [[buffer(8)]], constant int64_t *dim [[buffer(9)]],
                  uint thread_ [[thread_position_in_threadgroup]]) {
    const int i = (int)thread_, c = (int)dim[0];
    T_EACH(EVERY_LINE)
    p_f32[i] += every_storage(p_u16, p_u8, p_f32[i], c);
}
