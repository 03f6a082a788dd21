// Declarations of what t_device.mm uses of Foundation, so that its syntax and types can be checked without Apple's SDK.
// Nothing here is ever linked.
#pragma once
#include <stddef.h>
#include <stdint.h>

#define nil nullptr

typedef long NSInteger;
typedef unsigned long NSUInteger;
typedef double CFTimeInterval;
#if defined(__aarch64__)
typedef bool BOOL;
#else
typedef signed char BOOL;
#endif

struct _NSZone;
typedef struct _NSZone NSZone;

typedef struct {
    unsigned long state;
    __unsafe_unretained id _Nullable *_Nullable itemsPtr;
    unsigned long *_Nullable mutationsPtr;
    unsigned long extra[5];
} NSFastEnumerationState;

@protocol NSObject
- (BOOL)isEqual:(nullable id)object;
@property(readonly) NSUInteger hash;
@end

@protocol NSFastEnumeration
- (NSUInteger)countByEnumeratingWithState:(nonnull NSFastEnumerationState *)state
                                  objects:(__unsafe_unretained id _Nullable[_Nonnull])buffer
                                    count:(NSUInteger)length;
@end

__attribute__((objc_root_class))
@interface NSObject <NSObject> {
    Class isa;
}
+ (nonnull instancetype)alloc;
- (nonnull instancetype)init;
@end

@interface NSString : NSObject
+ (nullable instancetype)stringWithUTF8String:(nonnull const char *)text;
@property(readonly, nullable) const char *UTF8String;
@property(readonly) NSUInteger length;
@end

@interface NSArray<__covariant ObjectType> : NSObject <NSFastEnumeration>
@property(readonly) NSUInteger count;
- (nonnull ObjectType)objectAtIndex:(NSUInteger)index;
@end

@interface NSError : NSObject
@property(readonly) NSInteger code;
@property(readonly, copy, nonnull) NSString *domain;
@property(readonly, copy, nonnull) NSString *localizedDescription;
@end
