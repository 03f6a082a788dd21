/* The weights, inside the library: for Apple's format and for ELF. */
#ifdef __APPLE__
.section __TEXT,__const
.p2align 6
.globl _t_weights
.private_extern _t_weights
_t_weights:
.incbin "t_weights.bin"
#else
.section .rodata.t_weights, "a", %progbits
.balign 64
.globl t_weights
.hidden t_weights
.type t_weights, %object
t_weights:
.incbin "t_weights.bin"
.size t_weights, . - t_weights
.section .note.GNU-stack, "", %progbits
#endif
