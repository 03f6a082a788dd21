// Declarations of what t_device.mm uses of libdispatch, whose objects are Objective-C's there.
#pragma once
#import <Foundation/Foundation.h>

@protocol OS_dispatch_data <NSObject>
@end
@protocol OS_dispatch_queue <NSObject>
@end
typedef NSObject<OS_dispatch_data> *dispatch_data_t;
typedef NSObject<OS_dispatch_queue> *dispatch_queue_t;
typedef void (^dispatch_block_t)(void);

#define DISPATCH_DATA_DESTRUCTOR_DEFAULT NULL

extern "C" dispatch_data_t _Nonnull dispatch_data_create(const void *_Nonnull buffer, size_t size,
                                                         dispatch_queue_t _Nullable queue,
                                                         dispatch_block_t _Nullable destructor)
    __attribute__((ns_returns_retained));
