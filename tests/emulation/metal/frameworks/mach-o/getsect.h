// Declarations of what t_device.mm uses to find a section of its own library.
#pragma once
#include <stdint.h>

struct mach_header_64;

extern "C" uint8_t *getsectiondata(const struct mach_header_64 *mhp, const char *segname, const char *sectname,
                                   unsigned long *size);
